// The list of consumer groups: how far each is behind, in messages and in seconds.
import { html } from "../lib/dom.js";
import { href } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { Badge, Command, Empty, PageHead, Search } from "../lib/ui.js";
import { List, listParams } from "../lib/table.js";
import { compact, count, plural, seconds } from "../lib/format.js";

const TONES = { stable: "good", empty: "plain", dead: "plain", preparingrebalance: "warning", completingrebalance: "warning", assigning: "warning", reconciling: "warning" };

export function StateBadge({ state }) {
  return html`<${Badge} tone=${TONES[state.toLowerCase().replaceAll("_", "")] ?? "plain"}>${state}<//>`;
}

/** The state of a group; a stream of Spark has no members, whatever it does. */
export function GroupState({ row }) {
  if (row.spark && row.state.toLowerCase() === "empty") return html`<${Badge} tone="info" title="A stream of Spark commits to it, and is no member">Spark<//>`;
  return html`<${StateBadge} state=${row.state} />`;
}

export function Lag({ lag }) {
  if (lag === null || lag === undefined) return "–";
  return html`<span class=${lag > 0 ? "lagging" : ""} title=${count(lag)}>${compact(lag)}</span>`;
}

export function TopicLinks({ cluster, topics, all = topics.length }) {
  if (!all) return html`<span class="quiet-text">–</span>`;
  return html`${topics.map((name, at) => html`${at > 0 && ", "}<a href=${href(cluster, ["topics", name])} key=${name}>${name}</a>`)}
    ${all > topics.length && html`<span class="quiet-text"> and ${all - topics.length} more</span>`}`;
}

export default function Groups({ cluster }) {
  const state = useData(`${cluster}/groups`, listParams(), { live: true });
  const names = (state.data?.rows ?? []).map((row) => row.name).join("\n");
  const more = useData(names && `${cluster}/more-of-groups`, { names }, { live: true });
  const known = (row) => more.data?.[row.name] ?? {};
  const columns = [
    { key: "name", title: "Group", sort: true, render: (row) => html`<a class="strong" href=${href(cluster, ["groups", row.name])}>${row.name}</a>` },
    { key: "state", title: "State", sort: true, render: (row) => html`<${GroupState} row=${row} />` },
    { key: "members", title: "Members", number: true, render: (row) => count(known(row).members) },
    { key: "lag", title: "Lag", sort: true, number: true, render: (row) => html`<${Lag} lag=${row.lag} />` },
    { key: "seconds", title: "Behind", number: true, render: (row) => html`<span title="The age of the oldest message that it has not read">${seconds(known(row).seconds)}</span>` },
    { key: "topics", title: "Topics", sort: true, wide: true, render: (row) => html`<${TopicLinks} cluster=${cluster} topics=${row.topics} all=${row.topics_all} />` },
    { key: "partitions", title: "Partitions", sort: true, number: true, wide: true, render: (row) => html`${count(row.partitions)}${row.behind > 0 && html`<span class="quiet-text"> · ${count(row.behind)} behind</span>`}` },
    { key: "protocol", title: "Protocol", wide: true, render: (row) => html`<span title=${`coordinated by broker ${row.coordinator}`}>${row.kind}</span>${known(row).protocol && html`<span class="quiet-text"> · ${known(row).protocol}</span>`}` },
  ];
  return html`<${PageHead} title="Groups" />
    <div class="toolbar">
      <${Search} placeholder="Search groups" />
      <span class="quiet-text">${state.data && plural(state.data.total, "group")}</span>
    </div>
    <${List} state=${state} columns=${columns} keyOf=${(row) => row.name} label="Groups" empty=${html`<${NoGroups} all=${state.data?.all} />`} />`;
}

function NoGroups({ all }) {
  if (all) return html`<${Empty} title="No group is like that."><p>Change the search.</p><//>`;
  return html`<${Empty} title="No groups yet.">
    <p>A group is a set of consumers that share the partitions of topics and remember how far they have read. One begins when a consumer joins it.</p>
    <${Command} line="forebay consume TOPIC --group NAME" />
  <//>`;
}
