"use strict";
// Draws the figures by day that stand in data-plot, in the page's own colours.
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const draw = (place) => {
    const { label, days, series } = JSON.parse(place.dataset.plot);
    const strokes = ["--soft", "--wait", "--accent"].slice(-series.length).map(colour);
    const text = colour("--soft"), grid = { stroke: colour("--line"), width: 1 };
    const fullest = Math.max(...series.flatMap((each) => each.values)).toLocaleString().length;
    const language = document.documentElement.lang;
    const asDay = new Intl.DateTimeFormat(language, { day: "numeric", month: "short", timeZone: "UTC" });
    const options = {
      width: place.clientWidth, height: 200,
      scales: { x: { time: true } },
      axes: [{ stroke: text, grid: { show: false }, incrs: [1, 2, 7, 14, 28, 91].map((n) => n * 86400), values: (_, splits) => splits.map((at) => asDay.format(at * 1000)) }, { stroke: text, grid, size: 22 + 8 * fullest }],
      series: [{ label, value: "{YYYY}-{MM}-{DD}" }, ...series.map((each, number) => ({
        label: each.label, stroke: strokes[number], width: 2, points: { show: days.length < 3, size: 6 },
      }))],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
    };
    const data = [days.map((day) => Date.parse(day) / 1000), ...series.map((each) => each.values)];
    place.replaceChildren();
    new uPlot(options, data, place);
    place.dataset.drawn = String(place.clientWidth);
  };

  const drawIn = (part) => part.querySelectorAll("[data-plot]").forEach(draw);
  const ready = () => {
    drawIn(document);
    document.body.addEventListener("htmx:afterSettle", (event) => drawIn(event.target));
    addEventListener("resize", () => document.querySelectorAll("[data-plot]").forEach((place) => {
      if (place.dataset.drawn !== String(place.clientWidth)) draw(place);
    }));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawIn(document));
  };
  ready();
})();
