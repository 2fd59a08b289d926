// Pipelines: Spark's streams and jobs by what they have committed, and the steps of running pipelines.
import { html } from "../lib/dom.js";
import { href, route } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { Badge, Card, Command, Empty, Loaded, PageHead, Search, Trouble } from "../lib/ui.js";
import { HistoryPlot } from "../lib/plot.js";
import { Table, listParams } from "../lib/table.js";
import { ago, compact, count, rate, seconds } from "../lib/format.js";
import { Lag, TopicLinks } from "./groups.js";

const PLOTTED_MAX = 6;
const UNNAMED = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/;

export default function Pipelines({ cluster }) {
  const state = useData(`${cluster}/pipelines`, listParams(), { live: true });
  return html`<${PageHead} title="Pipelines" />
    <${Loaded} state=${state}>
      ${(data) => {
        const searched = Boolean(route.value.query.search);
        if (!searched && !data.readers.all && !data.writers_all && !data.steps_asked) return html`<${Nothing} />`;
        return html`<div class="toolbar"><${Search} placeholder="Search pipelines" /></div>
          ${data.steps_asked > 0 && html`<${Steps} rows=${data.steps} />`}
          <${Readers} cluster=${cluster} data=${data.readers} />
          <${Writers} cluster=${cluster} data=${data} />`;
      }}
    <//>`;
}

function Moved({ at }) {
  if (at === null || at === undefined) return html`<span class="quiet-text">not since the console began</span>`;
  return html`<span class="no-break">${ago(at * 1000)}</span>`;
}

function Readers({ cluster, data }) {
  const columns = [
    { key: "name", title: "Stream, by its group", sort: true, render: (row) => html`<a class="strong" href=${href(cluster, ["groups", row.name])}>${row.name}</a>` },
    { key: "topics", title: "Reads", wide: true, render: (row) => html`<${TopicLinks} cluster=${cluster} topics=${row.topics.slice(0, 3)} all=${row.topics.length} />` },
    { key: "rate", title: "Rows", number: true, render: (row) => rate(row.rate) },
    { key: "lag", title: "Lag", sort: true, number: true, render: (row) => html`<${Lag} lag=${row.lag} />` },
    { key: "seconds", title: "Behind", number: true, render: (row) => seconds(row.seconds) },
    { key: "moved", title: "Last batch", number: true, render: (row) => html`<${Moved} at=${row.moved} />` },
  ];
  const plotted = data.rows.slice(0, PLOTTED_MAX);
  return html`<h2 class="part">Streams that read</h2>
    ${plotted.length > 0 &&
    html`<div class="columns">
      <${Card} title="Rows a second"><${HistoryPlot} cluster=${cluster} lines=${plotted.map((row) => ({ series: `read:${row.name}`, label: row.name }))} format=${rate} height=${150} label="Rows a second of each stream" /><//>
      <${Card} title="Lag"><${HistoryPlot} cluster=${cluster} lines=${plotted.map((row) => ({ series: `lag:${row.name}`, label: row.name }))} format=${compact} height=${150} label="Lag of each stream" /><//>
    </div>`}
    <${Table} columns=${columns} data=${data} keyOf=${(row) => row.name} label="Streams that read" empty=${html`<${Card}><p class="quiet-text">None. A stream is shown here with the option <code>kafka.group.id</code>, and <code>forebay pipeline archive</code> with <code>--group</code>: to that group it commits what it has finished.</p><//>`} />`;
}

function Writers({ cluster, data }) {
  const columns = [
    { key: "name", title: "Stream or job", render: (row) => html`<${WriterName} name=${row.name} />` },
    { key: "topics", title: "Writes to", render: (row) => html`<${TopicLinks} cluster=${cluster} topics=${row.topics.slice(0, 3)} all=${row.topics.length} />` },
    { key: "batch", title: "Last batch", number: true, render: (row) => count(row.batch) },
    { key: "rate", title: "Batches a minute", number: true, wide: true, render: (row) => (row.batches_a_minute === null ? "–" : compact(row.batches_a_minute)) },
    { key: "moved", title: "Committed", number: true, render: (row) => html`<${Moved} at=${row.moved} />` },
  ];
  return html`<h2 class="part">Streams and jobs that write exactly once</h2>
    <${Table} columns=${columns} data=${{ rows: data.writers }} keyOf=${(row) => row.name} label="Streams and jobs that write exactly once" empty=${html`<${Card}><p class="quiet-text">None. Those with <code>exactly-once</code> record each batch with the brokers.</p><//>`} />`;
}

/** A query without a name of its own is known by its id, which says nothing to a person. */
function WriterName({ name }) {
  if (!UNNAMED.test(name)) return html`<span class="strong">${name}</span>`;
  return html`<span class="strong">A query without a name</span> <span class="quiet-text" title=${name}>${name.slice(0, 8)}</span>`;
}

function Steps({ rows }) {
  const columns = [
    { key: "step", title: "Step", render: (row) => html`<span class="strong">${row.step}</span>` },
    { key: "up", title: "State", render: (row) => (row.up ? html`<${Badge} tone="good">works<//>` : html`<${Badge} tone="warning">waits to be started again<//>`) },
    { key: "rows_total", title: "Rows read", number: true, render: (row) => compact(row.rows_total) },
    { key: "rows_written_total", title: "Written", number: true, wide: true, render: (row) => compact(row.rows_written_total) },
    { key: "batches_total", title: "Batches", number: true, wide: true, render: (row) => count(row.batches_total) },
    { key: "lag_messages", title: "Lag", number: true, render: (row) => html`<${Lag} lag=${row.lag_messages} />` },
    { key: "lag_seconds", title: "Behind", number: true, render: (row) => seconds(row.lag_seconds) },
    { key: "restarts_total", title: "Restarts", number: true, wide: true, render: (row) => count(row.restarts_total) },
    { key: "lost", title: "Lost, unreadable", number: true, wide: true, render: (row) => `${count(row.lost_total ?? 0)}, ${count(row.unreadable_total ?? 0)}` },
  ];
  const shown = rows.filter((row) => row.step !== null);
  return html`<h2 class="part">Steps of running pipelines</h2>
    ${rows.filter((row) => row.problem).map((row) => html`<${Trouble} key=${row.at} error=${{ message: row.problem }} />`)}
    <${Table} columns=${columns} data=${{ rows: shown }} keyOf=${(row) => `${row.at} ${row.step}`} label="Steps of running pipelines" empty=${html`${rows.length === 0 && html`<${Card}><p class="quiet-text">No step is under way.</p><//>`}`} />`;
}

function Nothing() {
  return html`<${Empty} title="No pipelines are known.">
    <p>Streams of Spark are shown here by the offsets that they commit: those that read with <code>kafka.group.id</code>, and those that write with <code>exactly-once</code>. For the steps of a run, start it with <code>--metrics 9400</code>, and a console with <code>forebay console --pipeline 9400</code>.</p>
    <${Command} line="forebay pipeline archive TOPIC --to FOLDER --group NAME --every 1m" />
  <//>`;
}
