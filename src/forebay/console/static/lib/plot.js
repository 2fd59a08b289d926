// Plots over time with uPlot, in the colours of the theme. uPlot is loaded with the first plot.
import { html, useEffect, useRef } from "./dom.js";
import { useData } from "./data.js";
import { theme } from "./prefs.js";
import { Loaded } from "./ui.js";

let uplot = null;
/** Seconds between the ticks of time. */
const TICKS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600];

function load() {
  if (!uplot) {
    const style = document.createElement("link");
    style.rel = "stylesheet";
    style.href = "/static/vendor/uplot.css";
    document.head.append(style);
    uplot = import("uplot").then((module) => module.default);
  }
  return uplot;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function last(values) {
  return values?.[values.length - 1];
}

function lastKnown(values) {
  return last(values?.filter((value) => value !== null));
}

function sparse(values) {
  return values.filter((value) => value !== null).length < 3;
}

function shownValue(value, format) {
  return value === null || value === undefined ? "–" : format(value);
}

/** 14:05, or 14:05:20 where the ticks are that close. */
function clockTimes(seconds) {
  const fine = seconds.length > 1 && seconds[1] - seconds[0] < 60;
  const options = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(fine ? { second: "2-digit" } : {}) };
  return seconds.map((each) => new Date(each * 1000).toLocaleTimeString("en-GB", options));
}

/** Of ticks that read alike, as 0.5 and 1 of whole numbers do, only the highest has a label. */
function distinct(labels) {
  return labels.map((label, at) => (label === labels[at + 1] ? "" : label));
}

/** One plot. times: seconds; series: [{label, values, colour}]; format: for the axis and the legend. */
export function Plot({ times, series, format, height = 180, label }) {
  const place = useRef(null);
  const plot = useRef(null);
  const shape = JSON.stringify([series.map((each) => each.label), height, theme.value]);

  useEffect(() => {
    let gone = false;
    let watcher = null;
    load().then((UPlot) => {
      if (gone || !place.current) return;
      const text = colour("--text-quiet");
      const grid = { stroke: colour("--line"), width: 1 };
      const options = {
        width: place.current.clientWidth || 300,
        height,
        padding: [10, 22, 0, 0],
        cursor: { points: { size: 6 }, y: false },
        legend: { live: true },
        scales: { y: { range: (_, _low, high) => [0, high > 0 ? high * 1.15 : 1] } },
        axes: [
          { stroke: text, grid, ticks: grid, font: "11px system-ui", space: 70, incrs: TICKS, values: (_, all) => clockTimes(all) },
          { stroke: text, grid, ticks: grid, font: "11px system-ui", size: 66, values: (_, all) => distinct(all.map((value) => format(value))) },
        ],
        series: [
          { label: "At", value: (_, value) => (value === null ? "now" : new Date(value * 1000).toLocaleTimeString("en-GB")) },
          ...series.map((each, at) => ({
            label: each.label,
            stroke: colour(each.colour ?? `--plot-${(at % 6) + 1}`),
            fill: series.length === 1 ? `${colour("--plot-1")}22` : undefined,
            width: 1.75,
            spanGaps: each.spanGaps ?? false,
            // A value between two gaps is no line: it is shown as a point.
            points: { show: (self, index) => sparse(self.data[index]), size: 5 },
            value: (self, value, index, at) => shownValue(at === null ? (each.spanGaps ? lastKnown : last)(self.data[index]) : value, format),
          })),
        ],
      };
      plot.current = new UPlot(options, [times, ...series.map((each) => each.values)], place.current);
      watcher = new ResizeObserver(() => {
        if (place.current) plot.current?.setSize({ width: place.current.clientWidth, height });
      });
      watcher.observe(place.current);
    });
    return () => {
      gone = true;
      watcher?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => {
    plot.current?.setData([times, ...series.map((each) => each.values)]);
  }, [times, series]);

  return html`<div class="plot" ref=${place} role="img" aria-label=${label}></div>`;
}

/** A plot of series that the console keeps for an hour. lines: [{series, label, spanGaps}] */
export function HistoryPlot({ cluster, lines, format, height, label }) {
  const state = useData(`${cluster}/history`, { series: lines.map((line) => line.series).join("\n") }, { live: true });
  return html`<${Loaded} state=${state} rows=${3}>
    ${(data) =>
      data.t.length < 2
        ? html`<p class="quiet-text plot-wait">Collecting: the first points come within seconds.</p>`
        : html`<${Plot}
            times=${data.t}
            series=${lines.map((line) => ({ label: line.label, values: data[line.series], colour: line.colour, spanGaps: line.spanGaps }))}
            format=${format}
            height=${height}
            label=${label}
          />`}
  <//>`;
}
