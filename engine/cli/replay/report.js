"use strict";
// Draws the plots of the page from its data. Texts go in as text, never as markup.
(() => {
  const HEIGHT = 260;
  const HOUR = 3600;
  const DAY = 86400;
  // The palette of Okabe and Ito, which colour-blind people can distinguish.
  const COLOURS = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999933", "#8c8c8c",
  ];
  const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
  const data = JSON.parse(document.getElementById("data").textContent);
  const colourOf = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const two = (number) => String(number).padStart(2, "0");

  // Times are the venues' local times, written as if they were in UTC.
  const dayOf = (at) => `${at.getUTCDate()} ${MONTHS[at.getUTCMonth()]}`;
  const tick = (seconds) => {
    const at = new Date(seconds * 1000);
    const midnight = at.getUTCHours() === 0 && at.getUTCMinutes() === 0;
    return midnight ? dayOf(at) : `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}`;
  };
  const when = (seconds) => {
    const at = new Date(seconds * 1000);
    const day = `${dayOf(at)} ${at.getUTCFullYear()}`;
    return data.unit === DAY ? day : `${day} ${two(at.getUTCHours())}:00`;
  };

  // Stacks the bars: each bar is the sum of itself and all below it, and the tallest is drawn first.
  const stacked = (series) => {
    const sums = [];
    let below = null;
    for (const { values } of series) {
      const under = below;
      below = values.map((value, at) => value + (under === null ? 0 : under[at]));
      sums.push(below);
    }
    return sums;
  };

  const options = (plot, width) => {
    const axis = {
      stroke: () => colourOf("--axis"),
      grid: { stroke: () => colourOf("--grid"), width: 1 },
      ticks: { stroke: () => colourOf("--grid"), width: 1 },
    };
    const bars = uPlot.paths.bars({ size: [plot.stacked ? 0.85 : 0.4, 48], align: 0 });
    const beside = [-1, 1].map((align) => uPlot.paths.bars({ size: [0.42, 24], align }));
    const series = plot.series.map(({ label, colour, values }, number) => ({
      label,
      fill: COLOURS[colour],
      stroke: COLOURS[colour],
      width: 0,
      points: { show: false },
      paths: plot.stacked ? bars : beside[number % 2],
      value: (u, sum, s, index) => (index === null ? "" : values[index].toLocaleString("en")),
    }));
    if (plot.stacked) series.reverse();
    return {
      width,
      height: HEIGHT,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      scales: {
        x: { range: (u, min, max) => [min - data.unit, max + data.unit] },
        y: { range: (u, min, max) => [0, Math.max(1, max * 1.05)] },
      },
      axes: [
        { ...axis, space: 56, incrs: [HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY,
          2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 365 * DAY].filter((n) => n >= data.unit),
          values: (u, splits) => splits.map(tick) },
        { ...axis, size: 56, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4,
          5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 2e7, 5e7, 1e8, 1e9],
          values: (u, splits) => splits.map((value) => value.toLocaleString("en",
            { notation: value < 1e4 ? "standard" : "compact" })) },
      ],
      series: [{ label: "", value: (u, s) => (s === null ? "" : when(s)) }, ...series],
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      legend: { markers: { width: 0 } },
    };
  };

  for (const plot of data.plots) {
    const place = document.getElementById(plot.id);
    const series = plot.series.map(({ values }) => values);
    const drawn = plot.stacked ? stacked(plot.series).reverse() : series;
    const chart = new uPlot(options(plot, place.clientWidth), [data.x, ...drawn], place);
    new ResizeObserver(() => chart.setSize({ width: place.clientWidth, height: HEIGHT }))
      .observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart.redraw());
  }
  document.documentElement.dataset.drawn = String(data.plots.length);
})();
