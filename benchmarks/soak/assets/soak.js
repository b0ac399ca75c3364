"use strict";
// Draws the plots of a long run: lines by the minutes since its start, and a mark for each restart.
(() => {
  const HEIGHT = 240;
  // The palette of Okabe and Ito, which colour-blind people can distinguish.
  const COLOURS = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999933", "#8c8c8c",
  ];
  const data = JSON.parse(document.getElementById("data").textContent);
  const colourOf = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const two = (number) => String(number).padStart(2, "0");
  const clock = (seconds) => {
    const whole = Math.round(seconds);
    const minutes = `${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
    return whole < 3600 ? minutes : `${Math.floor(whole / 3600)}:${minutes}`;
  };
  const figure = (value) => (value === null || value === undefined ? "" :
    value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : 0 }));

  const marks = (chart) => {
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.strokeStyle = colourOf("--axis");
    ctx.globalAlpha = 0.35;
    ctx.beginPath();
    for (const [at] of data.marks) {
      const x = Math.round(chart.valToPos(at, "x", true));
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
    }
    ctx.stroke();
    ctx.restore();
  };

  const options = (plot, width) => {
    const axis = {
      stroke: () => colourOf("--axis"),
      grid: { stroke: () => colourOf("--grid"), width: 1 },
      ticks: { stroke: () => colourOf("--grid"), width: 1 },
    };
    return {
      width,
      height: HEIGHT,
      scales: {
        x: { time: false },
        y: { range: (u, min, max) => [0, Math.max(1, max * 1.05)] },
      },
      axes: [
        { ...axis, values: (u, splits) => splits.map(clock),
          incrs: [10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600] },
        { ...axis, size: 56, values: (u, splits) => splits.map(figure) },
      ],
      series: [
        { label: "at", value: (u, seconds) => (seconds === null ? "" : clock(seconds)) },
        ...plot.series.map(({ label }, number) => ({
          label,
          stroke: COLOURS[number % COLOURS.length],
          width: 1.5,
          points: { show: false },
          value: (u, value) => figure(value),
        })),
      ],
      hooks: { drawAxes: [marks] },
    };
  };

  for (const plot of data.plots) {
    const place = document.getElementById(plot.id);
    const values = [data.x, ...plot.series.map((series) => series.values)];
    const chart = new uPlot(options(plot, place.clientWidth), values, place);
    new ResizeObserver(() => chart.setSize({ width: place.clientWidth, height: HEIGHT }))
      .observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart.redraw());
  }
  document.documentElement.dataset.drawn = String(data.plots.length);
})();
