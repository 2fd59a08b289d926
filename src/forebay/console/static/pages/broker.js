// One broker: the disk that each topic takes there, and its settings with their source.
import { html } from "../lib/dom.js";
import { href, route } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { Loaded, PageHead, Search, Stat, Tabs } from "../lib/ui.js";
import { List, Table, listParams } from "../lib/table.js";
import { Source } from "../lib/settings.js";
import { bytes, count, millis, rate } from "../lib/format.js";

export default function Broker({ cluster, rest }) {
  const [node] = rest;
  const base = `${cluster}/brokers/${encodeURIComponent(node)}`;
  const state = useData(base, listParams());
  const tab = route.value.query.tab ?? "disk";
  const tabs = [
    { id: "disk", title: "Disk by topic" },
    { id: "requests", title: "Requests" },
    { id: "settings", title: "Settings" },
  ];
  return html`<${PageHead} title=${`Broker ${node}`} crumbs=${[{ text: "Brokers", href: href(cluster, ["brokers"]) }]} />
    <${Loaded} state=${state}>
      ${(broker) => html`<div class="stats">
          <${Stat} label="Leads" value=${count(broker.leaders)} hint="partitions" />
          <${Stat} label="Replicas" value=${count(broker.replicas)} hint=${broker.controller ? "and the controller" : "of all topics"} />
          <${Stat} label="Logs" value=${bytes(broker.size)} hint="on its disk" />
          <${Stat} label="Free" value=${bytes(broker.disk_free)} hint=${`of ${bytes(broker.disk_total)}`} />
          <${Stat} label="Address" value=${html`<span class="small-value">${broker.address}</span>`} hint=${broker.rack ? `rack ${broker.rack}` : "no rack"} />
        </div>
        <${Tabs} tabs=${tabs} selected=${tab} />
        ${tab === "disk" && html`<${Disk} cluster=${cluster} state=${{ ...state, data: broker.disk }} />`}
        ${tab === "requests" && html`<${Requests} base=${base} />`}
        ${tab === "settings" && html`<${Settings} base=${base} />`}`}
    <//>`;
}

function Disk({ cluster, state }) {
  const columns = [
    { key: "name", title: "Topic", sort: true, render: (row) => html`<a class="strong" href=${href(cluster, ["topics", row.name])}>${row.name}</a>` },
    { key: "partitions", title: "Partitions here", sort: true, number: true, render: (row) => count(row.partitions) },
    { key: "leads", title: "Led here", sort: true, number: true, render: (row) => count(row.leads) },
    { key: "size", title: "Size", sort: true, number: true, render: (row) => bytes(row.size) },
  ];
  return html`<div class="toolbar"><${Search} placeholder="Search topics" /></div>
    <${List} state=${state} columns=${columns} keyOf=${(row) => row.name} label="Disk by topic" empty="No topic has a log here." />`;
}

function Requests({ base }) {
  const state = useData(`${base}/requests`, {}, { live: true });
  const columns = [
    { key: "name", title: "Request", render: (row) => html`<code>${row.name}</code>` },
    { key: "rate", title: "A second", number: true, render: (row) => rate(row.rate) },
    { key: "median_ms", title: "Median", number: true, render: (row) => millis(row.median_ms) },
    { key: "slow_ms", title: "99 of 100 below", number: true, render: (row) => millis(row.slow_ms) },
  ];
  return html`<${Loaded} state=${state}>
      ${(data) => html`<${Table} columns=${columns} data=${data} keyOf=${(row) => row.name} label="Requests" empty=${data.known ? "No requests since the last look." : "This broker has not told yet: its figures come with the second look, and need the right Describe on the cluster."} />`}
    <//>
    <p class="quiet-text">Between the last two looks of the console, which is among them. FetchConsumer and FetchFollower wait for messages on purpose.</p>`;
}

function Settings({ base }) {
  const state = useData(`${base}/settings`);
  const search = (route.value.query.search ?? "").toLowerCase();
  const columns = [
    { key: "name", title: "Setting", render: (row) => html`<code>${row.name}</code>` },
    { key: "value", title: "Value", render: (row) => html`<span class="value">${row.value === null || row.value === "" ? html`<span class="quiet-text">empty</span>` : row.value}</span>` },
    { key: "source", title: "From", wide: true, render: (row) => html`<${Source} row=${row} own="DYNAMIC_BROKER_CONFIG" />` },
  ];
  return html`<div class="toolbar"><${Search} placeholder="Search settings" /></div>
    <${Loaded} state=${state}>
      ${(data) => html`<${Table} columns=${columns} data=${{ rows: data.rows.filter((row) => row.name.includes(search)) }} keyOf=${(row) => row.name} label="Settings" empty="No setting is like that." />`}
    <//>`;
}
