// The overview: is everything well, how much comes in, who lags behind.
import { html } from "../lib/dom.js";
import { href } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { Badge, Card, Command, Loaded, PageHead, Stat } from "../lib/ui.js";
import { HistoryPlot } from "../lib/plot.js";
import { ago, bytes, bytesRate, compact, count, millis, moment, plural, rate } from "../lib/format.js";
import { Kind, eventText } from "../lib/events.js";

const PLOT = 150;
const LATENCY = [
  { series: "median-ms:Produce", label: "median" },
  { series: "slow-ms:Produce", label: "p99" },
];
const BYTES = [
  { series: "bytes-in", label: "in" },
  { series: "bytes-out", label: "out" },
];

export default function Overview({ cluster }) {
  const state = useData(`${cluster}/overview`, {}, { live: true });
  return html`<${PageHead} title="Overview" />
    <${Loaded} state=${state} rows=${6}>${(data) => html`<${Shown} cluster=${cluster} data=${data} />`}<//>`;
}

function Shown({ cluster, data }) {
  const up = data.brokers.filter((broker) => broker.answers).length;
  return html`<${Health} cluster=${cluster} problems=${data.problems} partitions=${data.partitions} />
    <div class="stats">
      <${Stat} label="Brokers" value=${`${up} of ${data.brokers.length}`} tone=${up < data.brokers.length ? "severe" : ""} hint="answer" />
      <${Stat} label="Coming in" value=${rate(data.rate)} hint=${data.produce ? `${bytes(data.produce.bytes_in)}/s` : "messages"} />
      <${Stat} label="Produce" value=${millis(data.produce?.slow_ms)} hint="99 of 100 are faster" />
      <${Stat} label="Topics" value=${compact(data.topics)} hint=${plural(data.partitions, "partition")} link=${href(cluster, ["topics"])} />
      <${Stat} label="Messages" value=${compact(data.messages)} hint=${data.size === null ? "kept" : data.remote === null ? `${bytes(data.size)} on disk` : `${bytes(data.size)} on disk, ${bytes(data.remote)} remote`} />
      <${Stat} label="Groups" value=${compact(data.groups)} hint=${`${compact(data.lag)} behind`} link=${href(cluster, ["groups"])} />
    </div>
    ${data.topics === 0 && html`<${FirstSteps} cluster=${cluster} />`}
    <div class="columns">
      <${Card} title="Throughput">
        <${HistoryPlot} cluster=${cluster} lines=${[{ series: "in", label: "messages/s" }]} format=${rate} height=${PLOT} label="Messages per second in the last hour" />
      <//>
      <${Card} title="Lag of all groups">
        <${HistoryPlot} cluster=${cluster} lines=${[{ series: "lag", label: "messages" }]} format=${compact} height=${PLOT} label="Lag in the last hour" />
      <//>
      ${data.produce &&
      html`<${Card} title="Latency of produce requests">
          <${HistoryPlot} cluster=${cluster} lines=${LATENCY} format=${millis} height=${PLOT} label="Latency of produce requests in the last hour: median, and what one in a hundred exceeds" />
        <//>
        <${Card} title="Bytes in and out">
          <${HistoryPlot} cluster=${cluster} lines=${BYTES} format=${bytesRate} height=${PLOT} label="Bytes per second in and out in the last hour" />
        <//>`}
      <${Card} title="Busiest topics">
        <${Bars} rows=${data.busiest} value=${(row) => row.rate} text=${(row) => rate(row.rate)} link=${(row) => href(cluster, ["topics", row.name])} empty="Nothing comes in just now." />
      <//>
      <${Card} title="Groups that are behind">
        <${Bars} rows=${data.lagging} value=${(row) => row.lag} text=${(row) => compact(row.lag)} link=${(row) => href(cluster, ["groups", row.name])} empty=${data.groups ? "Every group has read everything." : "No groups yet."} />
      <//>
    </div>
    <${Card} title="Brokers">
      <div class="brokers">${data.brokers.map((broker) => html`<${Broker} key=${broker.id} cluster=${cluster} broker=${broker} />`)}</div>
    <//>
    <${Lately} cluster=${cluster} />
    ${data.hidden.length > 0 && html`<p class="quiet-text">Not shown to this user: ${data.hidden.join("; ")}.</p>`}`;
}

function Health({ cluster, problems, partitions }) {
  if (!problems.length) {
    return html`<div class="health good" role="status"><span class="dot"></span><p><b>All is well.</b> ${partitions ? "Every partition has its leader and all its replicas." : "The brokers answer."}</p></div>`;
  }
  return html`<div class="problems" role="status">
    ${problems.map(
      (problem) => html`<div class=${`health ${problem.severity}`} key=${problem.title}>
        <span class="dot"></span>
        <div><p><b>${problem.title}</b></p><p>${problem.advice}</p></div>
        ${problem.link && html`<a class="button" href=${`/${encodeURIComponent(cluster)}/${problem.link}`}>Show</a>`}
      </div>`,
    )}
  </div>`;
}

/** For a cluster without topics: what a person does first. */
function FirstSteps({ cluster }) {
  return html`<${Card} title="First steps" actions=${html`<a href=${href(cluster, ["topics"])}>Create a topic here</a>`}>
    <ol class="first-steps">
      <li><span>Create a topic</span><${Command} line="forebay topic create orders" /></li>
      <li><span>Send a message</span><${Command} line="echo hello | forebay produce orders" /></li>
      <li><span>Read it</span><${Command} line="forebay consume orders" /></li>
    </ol>
  <//>`;
}

function Bars({ rows, value, text, link, empty }) {
  if (!rows.length) return html`<p class="quiet-text">${empty}</p>`;
  const most = Math.max(...rows.map(value));
  return html`<ol class="bars">
    ${rows.map(
      (row) => html`<li key=${row.name}>
        <a href=${link(row)}>${row.name}</a><span>${text(row)}</span>
        <meter min="0" max=${most} value=${value(row)} aria-hidden="true"></meter>
      </li>`,
    )}
  </ol>`;
}

function Lately({ cluster }) {
  const state = useData(`${cluster}/timeline/latest`, {}, { live: true });
  if (!state.data?.rows.length) return null;
  return html`<${Card} title="Lately" actions=${html`<a href=${href(cluster, ["timeline"])}>Timeline</a>`}>
    <ul class="lately">
      ${state.data.rows.map(
        (row, at) => html`<li key=${`${row.at}-${at}`}><${Kind} row=${row} /><span>${eventText(row)}</span><time class="quiet-text" title=${moment(row.at)}>${ago(row.at)}</time></li>`,
      )}
    </ul>
  <//>`;
}

function Broker({ cluster, broker }) {
  const used = broker.disk_total ? 1 - broker.disk_free / broker.disk_total : null;
  return html`<div class="broker">
    <p class="broker-name">
      <span class=${`dot ${broker.answers ? "good" : "severe"}`}></span><a class="strong" href=${href(cluster, ["brokers", broker.id])}>Broker ${broker.id}</a>
      ${broker.controller && html`<${Badge} tone="info" title="It decides about leaders">controller<//>`}
      ${broker.rack && html`<${Badge}>${broker.rack}<//>`}
      ${!broker.answers && html`<${Badge} tone="severe">does not answer<//>`}
    </p>
    <p class="quiet-text">${broker.address}</p>
    <dl class="facts">
      <dt>Leads</dt><dd>${count(broker.leaders)}</dd>
      <dt>Replicas</dt><dd>${count(broker.replicas)}</dd>
      <dt>Logs</dt><dd>${bytes(broker.size)}</dd>
      ${used !== null && html`<dt>Disk</dt><dd>${Math.round(used * 100)} % full, ${bytes(broker.disk_free)} free</dd>`}
    </dl>
    ${used !== null && html`<meter min="0" max="1" low="0.9" high="0.97" optimum="0" value=${used} aria-label="Disk"></meter>`}
  </div>`;
}
