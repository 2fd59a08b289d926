// Brokers: their share of the work, moves under way, failovers; rebalance, drain, take back, forget.
import { html } from "../lib/dom.js";
import { href } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { change, isReadOnly } from "../lib/change.js";
import { Badge, Button, Card, Loaded, PageHead, toast } from "../lib/ui.js";
import { Table } from "../lib/table.js";
import { Spread } from "../lib/spread.js";
import { bytes, count, plural } from "../lib/format.js";

export default function Brokers({ cluster }) {
  const state = useData(`${cluster}/brokers`, {}, { live: true });
  const act = (path, body) => change(`${cluster}/brokers/${path}`, body).then((done) => done && state.reload(), (error) => toast(error.message, "warning"));
  return html`<${PageHead} title="Brokers">
      ${!isReadOnly() && html`<${Button} onClick=${() => act("rebalance")}>Rebalance …<//>`}
    <//>
    <${Loaded} state=${state}>
      ${(data) => html`<${Job} job=${data.job} />
        <${Shares} cluster=${cluster} data=${data} act=${act} />
        ${data.moving_total > 0 && html`<${Moves} cluster=${cluster} data=${data} />`}
        <${Spread} cluster=${cluster} />
        <${Failovers} rows=${data.failovers} />`}
    <//>`;
}

function Job({ job }) {
  if (!job) return null;
  const tone = job.running ? "info" : job.problems.length ? "warning" : "good";
  return html`<div class=${`health ${tone}`} role="status">
    <span class="dot"></span>
    <div>
      <p><b>${job.title}</b> ${job.running ? `moves partitions: ${count(job.done)} of ${count(job.total)}` : job.problems.length ? "has ended with problems" : "has ended"}</p>
      ${job.running && html`<meter min="0" max=${job.total || 1} value=${job.done} aria-label="Moved"></meter>`}
      ${job.problems.map((line) => html`<p key=${line}>${line}</p>`)}
    </div>
  </div>`;
}

function Shares({ cluster, data, act }) {
  const most = (key) => Math.max(1, ...data.rows.map((row) => row[key]));
  const [leaders, replicas] = [most("leaders"), most("replicas")];
  const columns = [
    {
      key: "id",
      title: "Broker",
      render: (row) => html`<a class="strong" href=${href(cluster, ["brokers", row.id])}>Broker ${row.id}</a>
        ${row.controller && html` <${Badge} tone="info" title="It decides about leaders">controller<//>`}
        ${row.drained && html` <${Badge} tone="warning" title="It gets no new partitions">drained<//>`}
        ${!row.answers && html` <${Badge} tone="severe">does not answer<//>`}`,
    },
    { key: "address", title: "Address", wide: true, render: (row) => html`${row.address} ${row.rack && html`<${Badge}>${row.rack}<//>`}` },
    { key: "leaders", title: "Leads", render: (row) => html`<${Share} value=${row.leaders} most=${leaders} label="Leads" />` },
    { key: "replicas", title: "Replicas", render: (row) => html`<${Share} value=${row.replicas} most=${replicas} label="Replicas" />` },
    { key: "size", title: "Logs", number: true, render: (row) => bytes(row.size) },
    { key: "free", title: "Free", number: true, wide: true, render: (row) => bytes(row.disk_free) },
    {
      key: "act",
      title: html`<span class="visually-hidden">Change</span>`,
      number: true,
      render: (row) =>
        !isReadOnly() &&
        (row.drained
          ? html`<${Button} kind="quiet small" label=${`Take back broker ${row.id}`} onClick=${() => act(`${row.id}/take-back`)}>Take back<//>`
          : html`<${Button} kind="quiet small" label=${`Drain broker ${row.id}`} onClick=${() => act(`${row.id}/drain`)}>Drain …<//>`),
    },
  ];
  return html`<${Table} columns=${columns} data=${{ rows: data.rows }} keyOf=${(row) => row.id} label="Brokers" />
    ${data.away.map(
      (node) => html`<div class="health warning" key=${node}>
        <span class="dot"></span>
        <div><p><b>Broker ${node} is away</b> and still has replicas. Start it again; or, if it will not come back, drain and forget it.</p></div>
        ${!isReadOnly() && html`<${Button} onClick=${() => act(`${node}/drain`)}>Drain …<//><${Button} onClick=${() => act(`${node}/forget`)}>Forget …<//>`}
      </div>`,
    )}`;
}

function Share({ value, most, label }) {
  return html`<span class="share"><span>${count(value)}</span><meter min="0" max=${most} value=${value} aria-label=${label}></meter></span>`;
}

function Moves({ cluster, data }) {
  const columns = [
    { key: "topic", title: "Partition", render: (row) => html`<a class="strong" href=${href(cluster, ["topics", row.topic])}>${row.topic}</a> ${row.partition}` },
    { key: "replicas", title: "Replicas", render: (row) => row.replicas.join(", ") },
    { key: "adding", title: "Adding", render: (row) => row.adding.join(", ") || "–" },
    { key: "removing", title: "Removing", render: (row) => row.removing.join(", ") || "–" },
  ];
  return html`<h2 class="part">${plural(data.moving_total, "partition is being moved", "partitions are being moved")}</h2>
    <${Table} columns=${columns} data=${{ rows: data.moving }} keyOf=${(row) => `${row.topic}-${row.partition}`} label="Moves under way" />`;
}

function Failovers({ rows }) {
  const columns = [
    { key: "at", title: "When", render: (row) => new Date(row.at).toLocaleString() },
    { key: "broker", title: "Dead broker", render: (row) => `broker ${row.broker}` },
    { key: "partitions", title: "Led", number: true, render: (row) => count(row.partitions) },
    { key: "total", title: "Until led again", number: true, render: (row) => `${count(row.detect_ms + row.fence_ms + row.elect_ms + row.announce_ms)} ms` },
    { key: "parts", title: "Of that: detect, fence, elect, announce", number: true, wide: true, render: (row) => [row.detect_ms, row.fence_ms, row.elect_ms, row.announce_ms].map(count).join(" · ") },
    { key: "by", title: "Decided by", wide: true, render: (row) => `broker ${row.by}` },
  ];
  return html`<h2 class="part">Failovers</h2>
    ${rows.length
      ? html`<${Table} columns=${columns} data=${{ rows }} keyOf=${(row) => `${row.broker}-${row.at}`} label="Failovers" />`
      : html`<${Card}><p class="quiet-text">None: no broker was found dead since the controller has started.</p><//>`}`;
}
