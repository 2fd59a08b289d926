// Transactions: open, hanging and ended ones; aborting one whose producer is gone.
import { html } from "../lib/dom.js";
import { route, setQuery } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { change, isReadOnly } from "../lib/change.js";
import { Badge, Button, Empty, PageHead, Search, Toggle, toast } from "../lib/ui.js";
import { List, listParams } from "../lib/table.js";
import { count, duration, plural } from "../lib/format.js";

const TONES = { Ongoing: "info", PrepareCommit: "warning", PrepareAbort: "warning", CompleteCommit: "good" };
const WORDS = {
  Ongoing: "open",
  PrepareCommit: "committing",
  PrepareAbort: "aborting",
  CompleteCommit: "committed",
  CompleteAbort: "aborted",
  Empty: "none yet",
};

export default function Transactions({ cluster }) {
  const { open } = route.value.query;
  const state = useData(`${cluster}/transactions`, listParams({ open }), { live: true });
  const abort = (row) => change(`${cluster}/transactions/${encodeURIComponent(row.id)}/abort`).then((done) => done && state.reload(), (error) => toast(error.message, "severe"));
  const columns = [
    { key: "id", title: "Transactional id", sort: true, render: (row) => html`<span class="strong">${row.id}</span>` },
    { key: "state", title: "State", sort: true, render: (row) => html`<${Badge} tone=${row.overdue ? "severe" : (TONES[row.state] ?? "plain")} title=${row.state}>${WORDS[row.state] ?? row.state}<//> ${row.overdue && html`<${Badge} tone="severe">longer than its timeout<//>`}` },
    { key: "age", title: "Open for", sort: true, number: true, render: (row) => (row.age_ms === null ? "–" : duration(Math.max(0, row.age_ms))) },
    { key: "timeout", title: "Timeout", number: true, wide: true, render: (row) => duration(row.timeout_ms) },
    { key: "producer", title: "Producer", wide: true, render: (row) => html`<code title="producer id and epoch">${row.producer_id} / ${row.producer_epoch}</code>` },
    { key: "partitions", title: "Partitions", sort: true, number: true, render: (row) => html`<span title=${row.partitions.join(", ")}>${count(row.partitions_total)}</span>` },
    {
      key: "act",
      title: html`<span class="visually-hidden">Change</span>`,
      number: true,
      render: (row) => !isReadOnly() && row.state === "Ongoing" && html`<${Button} kind="danger-quiet small" label=${`Abort ${row.id}`} onClick=${() => abort(row)}>Abort …<//>`,
    },
  ];
  return html`<${PageHead} title="Transactions" />
    ${state.data?.overdue > 0 && html`<div class="health severe" role="status"><span class="dot"></span><div><p><b>${plural(state.data.overdue, "transaction hangs", "transactions hang")}.</b> Readers of committed messages wait for them. Abort those whose producer is gone.</p></div></div>`}
    <div class="toolbar">
      <${Search} placeholder="Search transactional ids" />
      <${Toggle} checked=${Boolean(open)} onChange=${(on) => setQuery({ open: on ? "1" : "", page: "" })}>Only open<//>
      <span class="quiet-text">${state.data && plural(state.data.total, "transaction")}</span>
    </div>
    <${List} state=${state} columns=${columns} keyOf=${(row) => row.id} label="Transactions" empty=${html`<${None} all=${state.data?.all} open=${open} />`} />`;
}

function None({ all, open }) {
  if (all || open) return html`<${Empty} title=${open ? "No transaction is open." : "No transactional id is like that."} />`;
  return html`<${Empty} title="Nobody has used transactions yet.">
    <p>Several messages, and the offsets of what was read for them, become visible together or not at all.</p>
    <p class="quiet-text">A producer with <code>transactional.id</code>, or <code>Producer(..., transactional_id="import-1")</code> of forebay.client.</p>
  <//>`;
}
