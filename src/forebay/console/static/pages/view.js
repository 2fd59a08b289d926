// One view: its definition, its partitions, and how far a stored one is behind its source.
import { html } from "../lib/dom.js";
import { go, href } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { change, isReadOnly } from "../lib/change.js";
import { Badge, Button, Card, Command, Loaded, PageHead, toast } from "../lib/ui.js";
import { Table } from "../lib/table.js";
import { count } from "../lib/format.js";
import { Lag } from "./groups.js";

export default function View({ cluster, rest }) {
  const [name] = rest;
  const base = `${cluster}/views/${encodeURIComponent(name)}`;
  const state = useData(base, {}, { live: true });
  const remove = () => change(`${base}/delete`).then((done) => done && go(href(cluster, ["views"])), (error) => toast(error.message, "severe"));
  return html`<${PageHead} title=${name} crumbs=${[{ text: "Views", href: href(cluster, ["views"]) }]}>
      <a class="button" href=${href(cluster, ["messages", name])}>Messages</a>
      <a class="button" href=${href(cluster, ["topics", name])}>Topic</a>
      ${!isReadOnly() && state.data && html`<${Button} kind="danger-quiet" onClick=${remove}>Delete<//>`}
    <//>
    <${Loaded} state=${state}>${(view) => html`<${Shown} cluster=${cluster} view=${view} />`}<//>`;
}

function Shown({ cluster, view }) {
  const stopped = view.rows.filter((row) => row.stopped);
  const columns = [
    { key: "partition", title: "Partition", render: (row) => row.partition },
    { key: "start", title: "First", number: true, render: (row) => count(row.start) },
    { key: "end", title: "End", number: true, render: (row) => count(row.end) },
    ...(view.materialized ? [{ key: "lag", title: "Behind its source", number: true, render: (row) => html`<${Lag} lag=${row.lag} />` }] : []),
  ];
  return html`${stopped.map((row) => html`<div class="health severe" key=${row.partition}><span class="dot"></span><p>Partition ${row.partition} is not filled: ${row.stopped}</p></div>`)}
    <${Card} title="Definition" actions=${html`<${Badge} tone=${view.materialized ? "info" : "plain"}>${view.materialized ? "stored in a topic of its own" : "filtered when it is read"}<//>`}>
      <dl class="facts">
        <dt>Of</dt><dd><a href=${href(cluster, ["topics", view.source])}>${view.source}</a></dd>
        <dt>Where</dt><dd>${view.where ? html`<code>${view.where}</code>` : "every message"}</dd>
        <dt>Select</dt><dd>${view.select ? html`<code>${view.select}</code>` : "the value as it is"}</dd>
        ${view.keep_tombstones && html`<dt>Keeps</dt><dd>tombstones</dd>`}
      </dl>
      <p class="quiet-text">Read it like a topic:</p><${Command} line=${`forebay consume ${view.name} --from beginning`} />
    <//>
    <${Table} columns=${columns} data=${view} keyOf=${(row) => row.partition} label="Partitions" />`;
}
