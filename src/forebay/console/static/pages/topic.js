// One topic: partitions and leaders, settings with their source, readers, plots; growing, folding, deleting.
import { html, useState } from "../lib/dom.js";
import { go, href, route } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { change, isReadOnly } from "../lib/change.js";
import { Badge, Button, Card, Dialog, Empty, Field, Loaded, PageHead, Search, Stat, Tabs, toast } from "../lib/ui.js";
import { Table } from "../lib/table.js";
import { Producers } from "./producers.js";
import { Tiers } from "./tiers.js";
import { Source } from "../lib/settings.js";
import { HistoryPlot } from "../lib/plot.js";
import { bytes, compact, count, duration, plural, rate } from "../lib/format.js";

export default function Topic({ cluster, rest }) {
  const [name] = rest;
  const base = `${cluster}/topics/${encodeURIComponent(name)}`;
  const state = useData(base, {}, { live: true });
  const tab = route.value.query.tab ?? "partitions";
  const [asking, setAsking] = useState("");
  const remove = () => change(`${base}/delete`).then((done) => done && go(href(cluster, ["topics"])), (error) => toast(error.message, "severe"));
  const tabs = [
    { id: "partitions", title: "Partitions", count: state.data?.partitions },
    { id: "readers", title: "Readers", count: state.data?.groups.length },
    { id: "producers", title: "Producers" },
    ...(isTiered(state.data) ? [{ id: "tiers", title: "Disk and object store" }] : []),
    { id: "settings", title: "Settings" },
  ];
  return html`<${PageHead} title=${name} crumbs=${[{ text: "Topics", href: href(cluster, ["topics"]) }]}>
      <a class="button primary" href=${href(cluster, ["messages", name])}>Messages</a>
      ${!isReadOnly() && state.data &&
      html`<${Button} onClick=${() => setAsking("count")}>Partitions …<//><${Button} kind="danger-quiet" onClick=${remove}>Delete<//>`}
    <//>
    <${Loaded} state=${state}>
      ${(topic) => html`<div class="stats">
          <${Stat} label="Coming in" value=${rate(topic.rate)} hint="messages" />
          <${Stat} label="Messages" value=${compact(topic.messages)} hint=${topic.messages >= 10000 ? count(topic.messages) : "kept"} />
          <${Stat} label=${isTiered(topic) ? "On disk" : "Size"} value=${bytes(topic.size)} hint="of the leaders" />
          ${isTiered(topic) && html`<${Remote} cluster=${cluster} topic=${topic} />`}
          <${Stat} label="Lag" value=${compact(topic.lag)} hint=${topic.groups.length ? "the slowest group" : "nobody reads it"} />
          <${Stat} label="Replicas" value=${topic.replication} tone=${topic.under_replicated ? "warning" : ""} hint=${topic.under_replicated ? `${topic.under_replicated} partitions lack one` : "all in sync"} />
        </div>
        <${Tabs} tabs=${tabs} selected=${tab} />
        ${tab === "partitions" && html`<${Partitions} cluster=${cluster} base=${base} topic=${topic} />`}
        ${tab === "readers" && html`<${Readers} cluster=${cluster} topic=${topic} />`}
        ${tab === "producers" && html`<${Producers} cluster=${cluster} base=${base} name=${name} />`}
        ${tab === "tiers" && html`<${Tiers} topic=${topic} />`}
        ${tab === "settings" && html`<${Settings} base=${base} />`}
        ${asking === "count" && html`<${PartitionCount} base=${base} topic=${topic} onClose=${() => setAsking("")} />`}`}
    <//>`;
}

function isTiered(topic) {
  return Boolean(topic?.rows.some((row) => row.remote));
}

function Remote({ cluster, topic }) {
  const logs = topic.rows.map((row) => row.remote).filter(Boolean);
  const waiting = logs.reduce((sum, log) => sum + (log.waiting ?? 0), 0);
  const failing = logs.filter((log) => log.problem).length;
  const hint = failing ? `fails for ${plural(failing, "partition")}` : waiting ? `${bytes(waiting)} not copied yet` : "all closed segments";
  const tone = failing ? "severe" : logs.some((log) => log.behind) ? "warning" : "";
  return html`<${Stat} label="In the object store" value=${bytes(topic.remote)} tone=${tone} hint=${hint} link=${href(cluster, ["topics", topic.name], { tab: "tiers" })} />`;
}

function Partitions({ cluster, base, topic }) {
  const folds = useData(`${base}/folds`);
  const into = folds.data?.folded_into ?? {};
  const columns = [
    { key: "partition", title: "Partition", render: (row) => html`<a class="strong" href=${href(cluster, ["messages", topic.name], { partition: row.partition })}>${row.partition}</a> ${into[row.partition] !== undefined && html`<${Badge} tone="info">folded into ${into[row.partition]}<//>`}` },
    { key: "leader", title: "Leader", render: (row) => (row.leader === null ? html`<${Badge} tone="severe">none<//>` : `broker ${row.leader}`) },
    { key: "replicas", title: "Replicas", render: (row) => row.replicas.map((node) => html`<span class=${`replica${row.isr.includes(node) ? "" : " away"}${node === row.leader ? " leads" : ""}`} title=${row.isr.includes(node) ? "in sync" : "not in sync"} key=${node}>${node}</span>`) },
    { key: "start", title: "First", number: true, wide: true, render: (row) => count(row.start) },
    { key: "end", title: "End", number: true, render: (row) => count(row.end) },
    { key: "messages", title: "Messages", number: true, render: (row) => count(row.messages) },
    { key: "size", title: "Size", number: true, render: (row) => bytes(row.size) },
  ];
  return html`${folds.data?.closed && html`<div class="health info"><span class="dot"></span><div><p>${folds.data.closed.note}</p>${folds.data.closed.waits_for.map((reason) => html`<p key=${reason}>Waits: ${reason}</p>`)}</div></div>`}
    <${Card} title="Last hour">
      <${HistoryPlot} cluster=${cluster} lines=${[{ series: `topic:${topic.name}`, label: "messages/s" }]} format=${rate} height=${150} label=${`Messages per second of ${topic.name}`} />
    <//>
    <${Table} columns=${columns} data=${{ rows: topic.rows }} keyOf=${(row) => row.partition} label="Partitions" />`;
}

function Readers({ cluster, topic }) {
  if (!topic.groups.length) return html`<${Empty} title="No group has read this topic."><p>Groups appear here when they commit their first offset.</p><//>`;
  const lines = topic.groups.slice(0, 6).map((group) => ({ series: `lag:${group.name}`, label: group.name }));
  const columns = [
    { key: "name", title: "Group", render: (row) => html`<a class="strong" href=${href(cluster, ["groups", row.name])}>${row.name}</a>` },
    { key: "kind", title: "Kind", render: (row) => html`<${Badge}>${row.kind}<//>` },
    { key: "state", title: "State", render: (row) => row.state },
    { key: "lag", title: "Lag here", number: true, render: (row) => count(row.lag) },
  ];
  return html`<${Card} title="Lag in the last hour"><${HistoryPlot} cluster=${cluster} lines=${lines} format=${compact} height=${160} label="Lag of the groups" /><//>
    <${Table} columns=${columns} data=${{ rows: topic.groups }} keyOf=${(row) => row.name} label="Groups" />`;
}

function Settings({ base }) {
  const state = useData(`${base}/settings`);
  const [edited, setEdited] = useState(null);
  const after = (done) => done && state.reload();
  const reset = (row) => change(`${base}/settings`, { deleted: [row.name] }).then(after, (error) => toast(error.message, "severe"));
  const columns = [
    { key: "name", title: "Setting", render: (row) => html`<code>${row.name}</code>` },
    { key: "value", title: "Value", render: (row) => html`<span class="value">${row.value === null || row.value === "" ? html`<span class="quiet-text">empty</span>` : row.value}</span> <span class="quiet-text">${meaning(row)}</span>` },
    { key: "source", title: "From", wide: true, render: (row) => html`<${Source} row=${row} own="DYNAMIC_TOPIC_CONFIG" />` },
    { key: "edit", title: html`<span class="visually-hidden">Change</span>`, number: true, render: (row) => !isReadOnly() && !row.read_only && html`<${Button} kind="quiet small" label=${`Change ${row.name}`} onClick=${() => setEdited(row)}>Change<//>${row.source === "DYNAMIC_TOPIC_CONFIG" && html`<${Button} kind="quiet small" label=${`Reset ${row.name}`} onClick=${() => reset(row)}>Reset<//>`}` },
  ];
  const wanted = (route.value.query.search ?? "").toLowerCase();
  const found = (data) => data.rows.filter((row) => row.name.includes(wanted));
  return html`<div class="toolbar"><${Search} placeholder="Search settings" /></div>
    <${Loaded} state=${state}>
      ${(data) => html`<${Table} columns=${columns} data=${{ rows: found(data) }} keyOf=${(row) => row.name} label="Settings" empty="No setting is like that." />`}
    <//>
    ${edited && html`<${EditSetting} base=${base} row=${edited} onClose=${(done) => { setEdited(null); after(done); }} />`}`;
}

function meaning(row) {
  const number = Number(row.value);
  if (row.value === null || row.value === "" || Number.isNaN(number)) return "";
  if (row.name.endsWith(".ms")) return number < 0 ? "for ever" : number >= 1000 ? duration(number) : "";
  if (row.name.endsWith(".bytes")) return number < 0 ? "no limit" : number >= 1000 ? bytes(number) : "";
  return "";
}

function EditSetting({ base, row, onClose }) {
  const [value, setValue] = useState(row.value ?? "");
  const [problem, setProblem] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    setProblem("");
    try {
      const done = await change(`${base}/settings`, { configs: { [row.name]: value } });
      if (done) onClose(done);
    } catch (error) {
      setProblem(error.message);
    }
  };
  return html`<${Dialog} title=${`Change ${row.name}`} onClose=${() => onClose(null)}>
    <form class="form" onSubmit=${submit}>
      <${Field} label="Value" wide error=${problem} hint=${meaning({ ...row, value })}><input value=${value} onInput=${(event) => setValue(event.target.value)} autofocus spellcheck="false" /><//>
      <div class="dialog-actions wide"><${Button} onClick=${() => onClose(null)}>Cancel<//><${Button} type="submit" kind="primary">Continue<//></div>
    </form>
  <//>`;
}

function PartitionCount({ base, topic, onClose }) {
  const [value, setValue] = useState(String(topic.partitions));
  const [moves, setMoves] = useState(false);
  const [problem, setProblem] = useState("");
  const fewer = Number(value) < topic.partitions;
  const submit = async (event) => {
    event.preventDefault();
    setProblem("");
    try {
      if (await change(`${base}/partitions`, { count: value, allow_key_moves: fewer && moves })) onClose();
    } catch (error) {
      setProblem(error.message);
    }
  };
  return html`<${Dialog} title="Number of partitions" onClose=${onClose}>
    <form class="form" onSubmit=${submit}>
      <${Field} label="Partitions" wide error=${problem} hint=${fewer ? "Fewer: the last ones are folded into the others." : "More: new ones are added."}><input value=${value} inputmode="numeric" autofocus onInput=${(event) => setValue(event.target.value)} /><//>
      ${fewer && html`<label class="toggle wide"><input type="checkbox" checked=${moves} onChange=${(event) => setMoves(event.target.checked)} /><span>Keys may move to another partition (needed if the new number does not divide the old one)</span></label>`}
      <div class="dialog-actions wide"><${Button} onClick=${onClose}>Cancel<//><${Button} type="submit" kind="primary">Continue<//></div>
    </form>
  <//>`;
}
