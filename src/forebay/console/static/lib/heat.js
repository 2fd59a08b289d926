// Lag over many partitions at a glance: a cell each, darker for more.
import { html } from "./dom.js";
import { count } from "./format.js";

const LEVELS = 6;
const MOST_MIN = 1000; // a few messages are no alarm, also where nobody is further behind

/** 0 for none, 1 to 6 for more: each level is a multiple of the one before. */
export function heatLevel(lag, most) {
  if (!lag) return 0;
  return Math.min(LEVELS, 1 + Math.floor((LEVELS * Math.log(lag)) / Math.log(most + 1)));
}

/** strips: [{topic, partitions, lags}], lag null where it is not known. */
export function HeatStrips({ strips }) {
  const most = Math.max(MOST_MIN, ...strips.flatMap((strip) => strip.lags.map((lag) => lag ?? 0)));
  return html`<div class="heat">
    ${strips.map((strip) => html`<${Strip} key=${strip.topic} strip=${strip} most=${most} />`)}
    <p class="heat-legend" aria-hidden="true">
      <span>0</span>
      ${Array.from({ length: LEVELS + 1 }, (_, level) => html`<i class=${`cell heat-${level}`} key=${level}></i>`)}
      <span>${count(most)} messages</span>
    </p>
  </div>`;
}

function Strip({ strip, most }) {
  const behind = strip.lags.filter((lag) => lag > 0).length;
  return html`<figure>
    <figcaption>${strip.topic} <span class="quiet-text">${behind ? `${count(behind)} of ${count(strip.lags.length)} partitions behind` : "all read"}</span></figcaption>
    <div class="cells" role="img" aria-label=${`Lag of ${strip.lags.length} partitions of ${strip.topic}: ${behind} behind`}>
      ${strip.lags.map(
        (lag, at) => html`<i
          class=${`cell ${lag === null ? "unknown" : `heat-${heatLevel(lag, most)}`}`}
          title=${`${strip.topic}-${strip.partitions[at]}: ${lag === null ? "not known" : `${count(lag)} behind`}`}
          key=${strip.partitions[at]}
        ></i>`,
      )}
    </div>
  </figure>`;
}
