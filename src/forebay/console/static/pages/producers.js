// The producers of a topic: those that its leaders remember, and their open transactions.
import { html } from "../lib/dom.js";
import { href, route, setQuery } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { Badge, Empty, Toggle } from "../lib/ui.js";
import { List, listParams } from "../lib/table.js";
import { ago, count, moment } from "../lib/format.js";

export function Producers({ cluster, base, name }) {
  const open = route.value.query.open ?? "";
  const state = useData(`${base}/producers`, listParams({ open }), { live: true });
  const columns = [
    { key: "producer", title: "Producer id", sort: true, render: (row) => html`<span class="strong">${row.producer}</span> <span class="quiet-text">epoch ${row.epoch}</span>` },
    { key: "partition", title: "Partition", sort: true, number: true, render: (row) => html`<a href=${href(cluster, ["messages", name], { partition: row.partition })}>${row.partition}</a>` },
    { key: "last", title: "Last wrote", sort: true, number: true, render: (row) => (row.last === null ? "–" : html`<time class="no-break" title=${moment(row.last)}>${ago(row.last)}</time>`) },
    { key: "sequence", title: "Last sequence", number: true, wide: true, render: (row) => count(row.sequence) },
    { key: "open_from", title: "Transaction", render: (row) => row.open_from !== null && html`<a href=${href(cluster, ["transactions"], { open: 1 })}><${Badge} tone="warning">open from offset ${count(row.open_from)}<//></a>` },
  ];
  const empty = html`<${Empty} title=${open ? "No transaction is open here." : "No idempotent producer has written lately."}>
    <p>Brokers remember producers with sequence numbers, which most are, until a day after their last message. Others leave no trace.</p>
    ${state.data?.refused.map((reason) => html`<p key=${reason}>${reason}</p>`)}
  <//>`;
  return html`<div class="toolbar">
      <${Toggle} checked=${Boolean(open)} onChange=${(wanted) => setQuery({ open: wanted ? "1" : "", page: "" })}>Only with an open transaction<//>
      <span class="quiet-text">${state.data && `${count(state.data.total)} in all${state.data.open_all ? `, ${count(state.data.open_all)} with an open transaction` : ""}`}</span>
    </div>
    <${List} state=${state} columns=${columns} keyOf=${(row) => `${row.producer}-${row.partition}`} label="Producers" empty=${empty} />`;
}
