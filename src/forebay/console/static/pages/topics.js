// The list of topics: rates, sizes, lag and readers at a glance; favourites; creating a topic.
import { html, useState } from "../lib/dom.js";
import { go, href, route, setQuery } from "../lib/router.js";
import { useData } from "../lib/data.js";
import { change, isReadOnly } from "../lib/change.js";
import { Badge, Button, Dialog, Empty, Field, PageHead, Search, Toggle } from "../lib/ui.js";
import { List, listParams } from "../lib/table.js";
import { Icon } from "../lib/icons.js";
import { favouritesOf, toggleFavourite } from "../lib/prefs.js";
import { bytes, compact, count, plural, rate } from "../lib/format.js";

export default function Topics({ cluster }) {
  const { internal, starred } = route.value.query;
  const favourites = favouritesOf(cluster, "topics");
  const params = listParams({ internal, only: starred ? favourites.join(",") || "-" : "" });
  const state = useData(`${cluster}/topics`, params, { live: true });
  const [creating, setCreating] = useState(false);
  const columns = [
    {
      key: "star",
      title: html`<span class="visually-hidden">Favourite</span>`,
      render: (topic) => html`<${Star} cluster=${cluster} name=${topic.name} on=${favourites.includes(topic.name)} />`,
    },
    {
      key: "name",
      title: "Topic",
      sort: true,
      render: (topic) => html`<a class="strong" href=${href(cluster, ["topics", topic.name])}>${topic.name}</a>
        ${topic.internal && html` <${Badge}>internal<//>`}
        ${topic.leaderless > 0 && html` <${Badge} tone="severe">${topic.leaderless} without leader<//>`}
        ${topic.leaderless === 0 && topic.under_replicated > 0 && html` <${Badge} tone="warning">${topic.under_replicated} under-replicated<//>`}`,
    },
    { key: "rate", title: "Coming in", sort: true, number: true, render: (topic) => rate(topic.rate) },
    { key: "messages", title: "Messages", sort: true, number: true, wide: true, render: (topic) => html`<span title=${count(topic.messages)}>${compact(topic.messages)}</span>` },
    { key: "size", title: "Size", sort: true, number: true, wide: true, render: (topic) => html`${bytes(topic.size)}${topic.remote !== null && html`<span class="quiet-text no-break" title="In the object store"> + ${bytes(topic.remote)}</span>`}` },
    { key: "lag", title: "Lag", sort: true, number: true, render: (topic) => (topic.lag === null ? "–" : html`<span class=${topic.lag > 0 ? "lagging" : ""} title=${count(topic.lag)}>${compact(topic.lag)}</span>`) },
    { key: "readers", title: "Read by", sort: true, wide: true, render: (topic) => html`<${Readers} cluster=${cluster} names=${topic.readers} />` },
    { key: "partitions", title: "Partitions", sort: true, number: true, wide: true, render: (topic) => html`${count(topic.partitions)}<span class="quiet-text"> × ${topic.replication}</span>` },
  ];
  return html`<${PageHead} title="Topics">
      ${!isReadOnly() && html`<${Button} kind="primary" onClick=${() => setCreating(true)}>Create topic<//>`}
    <//>
    <div class="toolbar">
      <${Search} placeholder="Search topics" />
      <${Toggle} checked=${Boolean(starred)} onChange=${(on) => setQuery({ starred: on ? "1" : "", page: "" })}>Favourites<//>
      <${Toggle} checked=${Boolean(internal)} onChange=${(on) => setQuery({ internal: on ? "1" : "", page: "" })}>Internal<//>
      <span class="quiet-text">${state.data && plural(state.data.total, "topic")}</span>
    </div>
    <${List} state=${state} columns=${columns} keyOf=${(topic) => topic.name} label="Topics" empty=${html`<${NoTopics} all=${state.data?.all} onCreate=${() => setCreating(true)} />`} />
    ${creating && html`<${CreateTopic} cluster=${cluster} onClose=${() => setCreating(false)} />`}`;
}

function NoTopics({ all, onCreate }) {
  if (all) return html`<${Empty} title="No topic is like that."><p>Change the search, or show internal ones.</p><//>`;
  return html`<${Empty} title="No topics yet.">
    ${!isReadOnly() && html`<${Button} kind="primary" onClick=${onCreate}>Create the first one<//>`}
  <//>`;
}

function Star({ cluster, name, on }) {
  return html`<button
    type="button"
    class=${`star${on ? " on" : ""}`}
    aria-pressed=${on}
    aria-label=${`Favourite ${name}`}
    onClick=${() => toggleFavourite(cluster, "topics", name)}
  ><${Icon} name="star" filled=${on} /></button>`;
}

function Readers({ cluster, names }) {
  const shown = names.slice(0, 2);
  return html`${shown.map((name, at) => html`${at > 0 && ", "}<a href=${href(cluster, ["groups", name])} key=${name}>${name}</a>`)}
    ${names.length > 2 && html`<span class="quiet-text" title=${names.join(", ")}> and ${names.length - 2} more</span>`}
    ${names.length === 0 && html`<span class="quiet-text">–</span>`}`;
}

function CreateTopic({ cluster, onClose }) {
  const [problem, setProblem] = useState(null);
  const [running, setRunning] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const form = Object.fromEntries(new FormData(event.target));
    const configs = {};
    if (form.retention) configs["retention.ms"] = form.retention;
    if (form.cleanup) configs["cleanup.policy"] = form.cleanup;
    for (const line of form.more.split("\n").filter((text) => text.trim())) {
      const [key, ...value] = line.split("=");
      configs[key.trim()] = value.join("=").trim();
    }
    setProblem(null);
    setRunning(true);
    try {
      const done = await change(`${cluster}/topics/create`, {
        name: form.name.trim(), partitions: form.partitions, replication_factor: form.replication, configs,
      });
      if (done) {
        onClose();
        go(href(cluster, ["topics", form.name.trim()]));
      }
    } catch (error) {
      setProblem(error);
    }
    setRunning(false);
  };
  const wrong = (field) => (problem?.field === field ? problem.message : "");
  return html`<${Dialog} title="Create topic" onClose=${onClose}>
    <form class="form" onSubmit=${submit}>
      <${Field} label="Name" wide error=${wrong("name")} hint="Letters, digits, dots, dashes and underscores."><input name="name" required autofocus maxlength="249" pattern="[A-Za-z0-9._\\-]+" autocomplete="off" spellcheck="false" /><//>
      <${Field} label="Partitions" error=${wrong("partitions")} hint="Empty: the broker's default."><input name="partitions" inputmode="numeric" /><//>
      <${Field} label="Replicas" error=${wrong("replication_factor")} hint="Empty: the broker's default."><input name="replication" inputmode="numeric" /><//>
      <${Field} label="Messages are kept">
        <select name="retention">
          <option value="">as the broker says</option>
          <option value="3600000">for an hour</option>
          <option value="86400000">for a day</option>
          <option value="604800000">for a week</option>
          <option value="2592000000">for 30 days</option>
          <option value="-1">for ever</option>
        </select>
      <//>
      <${Field} label="When they are old">
        <select name="cleanup">
          <option value="">as the broker says</option>
          <option value="delete">delete them</option>
          <option value="compact">keep the last of each key</option>
        </select>
      <//>
      <${Field} label="More settings" wide error=${wrong("configs")} hint="One key=value on each line."><textarea name="more" rows="2" spellcheck="false"></textarea><//>
      ${problem && !["name", "partitions", "replication_factor", "configs"].includes(problem.field) && html`<p class="trouble wide" role="alert">${problem.message}</p>`}
      <div class="dialog-actions wide">
        <${Button} onClick=${onClose}>Cancel<//>
        <${Button} type="submit" kind="primary" disabled=${running}>Continue<//>
      </div>
    </form>
  <//>`;
}
