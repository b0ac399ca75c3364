"use strict";
// Draws the figures in the attribute data-plot, by day or by hour, in the colours of the page.
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const COLOURS = { detections: "--soft", visits: "--wait", notifications: "--accent" };

  const draw = (place) => {
    // (Hours are in local time, written as if they were in UTC.)
    const { label, days, hours, series } = JSON.parse(place.dataset.plot);
    const times = days || hours;
    const strokes = series.map((each) => colour(COLOURS[each.name]));
    const text = colour("--soft"), grid = { stroke: colour("--line"), width: 1 };
    const fullest = Math.max(...series.flatMap((each) => each.values)).toLocaleString().length;
    const language = document.documentElement.lang;
    const asDay = new Intl.DateTimeFormat(language, { day: "numeric", month: "short", timeZone: "UTC" });
    const asHour = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone: "UTC" });
    const shown = (at) => (days || at % 86400 === 0 ? asDay : asHour).format(at * 1000);
    const steps = days ? [1, 2, 7, 14, 28, 91].map((n) => n * 86400) : [1, 3, 6, 12, 24].map((n) => n * 3600);
    const options = {
      width: place.clientWidth, height: 200,
      scales: { x: { time: true } },
      axes: [{ stroke: text, grid: { show: false }, incrs: steps, values: (_, splits) => splits.map(shown) }, { stroke: text, grid, size: 22 + 8 * fullest }],
      series: [{ label, value: days ? "{YYYY}-{MM}-{DD}" : "{YYYY}-{MM}-{DD} {HH}:{mm}" }, ...series.map((each, number) => ({
        label: each.label, stroke: strokes[number], width: 2, points: { show: times.length < 3, size: 6 },
      }))],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
    };
    const data = [times.map((time) => Date.parse(time) / 1000), ...series.map((each) => each.values)];
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
