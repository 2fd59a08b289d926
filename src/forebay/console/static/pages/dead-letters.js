// The topics that take dead letters: messages that were rejected, or delivered too often.
import { html } from "../lib/dom.js";
import { href } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { Badge, Command, Empty, PageHead, Search } from "../lib/ui.js";
import { List, listParams } from "../lib/table.js";
import { count, plural, rate } from "../lib/format.js";

export default function DeadLetters({ cluster }) {
  const state = useData(`${cluster}/dead-letters`, listParams());
  const columns = [
    { key: "name", title: "Topic", sort: true, render: (row) => html`<a class="strong" href=${href(cluster, ["dead-letters", row.name])}>${row.name}</a>${!row.exists && html` <${Badge}>not made yet<//>`}` },
    { key: "letters", title: "Letters", sort: true, number: true, render: (row) => html`<span class=${row.letters ? "lagging" : ""}>${count(row.letters)}</span>` },
    { key: "rate", title: "Coming in", sort: true, number: true, render: (row) => rate(row.rate) },
    { key: "groups", title: "From share groups", wide: true, render: (row) => (row.groups.length ? row.groups.map((name, at) => html`${at > 0 && ", "}<a href=${href(cluster, ["share-groups", name])} key=${name}>${name}</a>`) : html`<span class="quiet-text">none now</span>`) },
    { key: "partitions", title: "Partitions", number: true, wide: true, render: (row) => count(row.partitions) },
  ];
  return html`<${PageHead} title="Dead letters" />
    <div class="toolbar">
      <${Search} placeholder="Search topics" />
      <span class="quiet-text">${state.data && plural(state.data.total, "topic")}</span>
    </div>
    <${List} state=${state} columns=${columns} keyOf=${(row) => row.name} label="Dead-letter topics" empty=${html`<${None} all=${state.data?.all} />`} />`;
}

function None({ all }) {
  if (all) return html`<${Empty} title="No topic is like that."><p>Change the search.</p><//>`;
  return html`<${Empty} title="No share group keeps dead letters yet.">
    <p>A message that a worker rejects, or that was delivered too often, is a dead letter. Give a share group a topic for them, and they can be looked at and moved back here.</p>
    <${Command} line="forebay config set group NAME errors.deadletterqueue.topic.name=TOPIC.dead errors.deadletterqueue.copy.record.enable=true" />
  <//>`;
}
