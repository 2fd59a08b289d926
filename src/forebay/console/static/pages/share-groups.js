// The list of share groups (queues): what waits, what members hold.
import { html } from "../lib/dom.js";
import { href } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { Command, Empty, PageHead, Search } from "../lib/ui.js";
import { List, listParams } from "../lib/table.js";
import { count, plural, seconds } from "../lib/format.js";
import { Lag, StateBadge, TopicLinks } from "./groups.js";

export default function ShareGroups({ cluster }) {
  const state = useData(`${cluster}/share-groups`, listParams(), { live: true });
  const names = (state.data?.rows ?? []).map((row) => row.name).join("\n");
  const more = useData(names && `${cluster}/more-of-share-groups`, { names }, { live: true });
  const known = (row) => more.data?.[row.name] ?? {};
  const columns = [
    { key: "name", title: "Share group", sort: true, render: (row) => html`<a class="strong" href=${href(cluster, ["share-groups", row.name])}>${row.name}</a>` },
    { key: "state", title: "State", sort: true, render: (row) => html`<${StateBadge} state=${row.state} />` },
    { key: "members", title: "Members", number: true, render: (row) => count(known(row).members) },
    { key: "held", title: "Held", number: true, render: (row) => html`<span title="Messages that members are working on">${count(known(row).held)}</span>` },
    { key: "lag", title: "Lag", sort: true, number: true, render: (row) => html`<${Lag} lag=${row.lag} />` },
    { key: "seconds", title: "Behind", number: true, render: (row) => html`<span title="The age of the oldest message that is not finished">${seconds(known(row).seconds)}</span>` },
    { key: "topics", title: "Topics", sort: true, wide: true, render: (row) => html`<${TopicLinks} cluster=${cluster} topics=${row.topics} all=${row.topics_all} />` },
    { key: "partitions", title: "Partitions", sort: true, number: true, wide: true, render: (row) => count(row.partitions) },
  ];
  return html`<${PageHead} title="Share groups" />
    <div class="toolbar">
      <${Search} placeholder="Search share groups" />
      <span class="quiet-text">${state.data && plural(state.data.total, "share group")}</span>
    </div>
    <${List} state=${state} columns=${columns} keyOf=${(row) => row.name} label="Share groups" empty=${html`<${None} all=${state.data?.all} />`} />`;
}

function None({ all }) {
  if (all) return html`<${Empty} title="No share group is like that."><p>Change the search.</p><//>`;
  return html`<${Empty} title="No share groups yet.">
    <p>A share group is a queue: any number of workers take single messages, say of each whether it is done, and get those again that are not. One begins when the first worker joins.</p>
    <${Command} line="forebay work TOPIC --group NAME -- COMMAND" />
  <//>`;
}
