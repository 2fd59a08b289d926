// The topics in which messages wait for their time.
import { html } from "../lib/dom.js";
import { href } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { Button, Command, Empty, PageHead, Search } from "../lib/ui.js";
import { List, listParams } from "../lib/table.js";
import { count, moment, plural } from "../lib/format.js";
import { TimeLeft } from "./delay-topic.js";

export default function Delays({ cluster }) {
  const state = useData(`${cluster}/delays`, listParams());
  const columns = [
    { key: "name", title: "Topic", sort: true, render: (row) => html`<a class="strong" href=${href(cluster, ["delays", row.name])}>${row.name}</a>` },
    { key: "waiting", title: "Waiting", sort: true, number: true, render: (row) => count(row.waiting) },
    { key: "due", title: "Next", sort: true, number: true, render: (row) => html`<${TimeLeft} due=${row.due_ms} />` },
    { key: "at", title: "At", wide: true, render: (row) => html`<span class="quiet-text">${moment(row.due_ms)}</span>` },
  ];
  return html`<${PageHead} title="Delayed messages"><${Button} onClick=${state.reload} disabled=${state.loading}>Refresh<//><//>
    <div class="toolbar">
      <${Search} placeholder="Search topics" />
      <span class="quiet-text">${state.data && plural(state.data.total, "topic")}</span>
    </div>
    <${List} state=${state} columns=${columns} keyOf=${(row) => row.name} label="Topics with delayed messages" empty=${html`<${None} all=${state.data?.all} />`} />`;
}

function None({ all }) {
  if (all) return html`<${Empty} title="No topic is like that."><p>Change the search.</p><//>`;
  return html`<${Empty} title="No message waits for its time.">
    <p>A message with the header <code>forebay-deliver-after</code> or <code>forebay-deliver-at</code> is delivered later, in a topic with <code>forebay.delay.enable=true</code>. Until then nobody reads it, and it can be fired or cancelled here.</p>
    <${Command} line="echo 'call Ada' | forebay produce TOPIC --header forebay-deliver-after=2h" />
  <//>`;
}
