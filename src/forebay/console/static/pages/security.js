// Security: users, access rules, and quotas, a tab each.
import { html, useState } from "../lib/dom.js";
import { route } from "../lib/router.js";
import { get } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { change, isReadOnly } from "../lib/change.js";
import { Badge, Button, Card, Command, Dialog, Empty, Field, PageHead, Search, Tabs, toast } from "../lib/ui.js";
import { List, listParams } from "../lib/table.js";
import { count } from "../lib/format.js";

const TABS = [
  { id: "users", title: "Users" },
  { id: "rules", title: "Access rules" },
  { id: "quotas", title: "Quotas" },
];

export default function Security({ cluster }) {
  const tab = route.value.query.tab ?? "users";
  return html`<${PageHead} title="Security" />
    <${Tabs} tabs=${TABS} selected=${tab} />
    ${tab === "users" && html`<${Users} cluster=${cluster} />`}
    ${tab === "rules" && html`<${Rules} cluster=${cluster} />`}
    ${tab === "quotas" && html`<${Quotas} cluster=${cluster} />`}`;
}

/** A form in a dialog, whose fields are inputs by name. It asks before it acts. */
function Form({ title, path, body, children, onClose, wide }) {
  const [problem, setProblem] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    setProblem(null);
    try {
      const done = await change(path, body());
      if (done) onClose(done);
    } catch (error) {
      setProblem(error);
    }
  };
  return html`<${Dialog} title=${title} onClose=${() => onClose(null)} wide=${wide}>
    <form class="form" onSubmit=${submit}>
      ${children}
      ${problem && html`<p class="trouble wide" role="alert">${problem.message}</p>`}
      <div class="dialog-actions wide"><${Button} onClick=${() => onClose(null)}>Cancel<//><${Button} type="submit" kind="primary">Continue<//></div>
    </form>
  <//>`;
}

const said = (error) => toast(error.message, "severe");

// -- users ------------------------------------------------------------------------------------------------

function Users({ cluster }) {
  const state = useData(`${cluster}/users`, listParams());
  const [adding, setAdding] = useState(null);
  const after = (done) => done && state.reload();
  const remove = (row) => change(`${cluster}/users/${encodeURIComponent(row.name)}/delete`).then(after, said);
  const columns = [
    { key: "name", title: "User", sort: true, render: (row) => html`<span class="strong">${row.name}</span>` },
    { key: "mechanisms", title: "Logs in by", render: (row) => Object.entries(row.mechanisms).map(([name, rounds]) => html`<${Badge} key=${name} title=${`${count(rounds)} rounds`}>${name}<//> `) },
    {
      key: "act",
      title: html`<span class="visually-hidden">Change</span>`,
      number: true,
      render: (row) => !isReadOnly() && html`<${Button} kind="quiet small" label=${`New password for ${row.name}`} onClick=${() => setAdding(row.name)}>New password<//><${Button} kind="danger-quiet small" label=${`Delete ${row.name}`} onClick=${() => remove(row)}>Delete<//>`,
    },
  ];
  const none = html`<${Empty} title="No users."><p>Clients log in with users once a listener asks for it (SASL).</p><${Command} line="forebay serve --secure" /><//>`;
  return html`<div class="toolbar">
      <${Search} placeholder="Search users" />
      ${!isReadOnly() && html`<${Button} kind="primary" onClick=${() => setAdding("")}>Add user<//>`}
    </div>
    <${List} state=${state} columns=${columns} keyOf=${(row) => row.name} label="Users" empty=${none} />
    ${adding !== null && html`<${AddUser} cluster=${cluster} given=${adding} onClose=${(done) => { setAdding(null); after(done); }} />`}`;
}

function AddUser({ cluster, given, onClose }) {
  const [name, setName] = useState(given);
  const [password, setPassword] = useState("");
  return html`<${Form} title=${given ? `New password for ${given}` : "Add user"} path=${`${cluster}/users/add`} body=${() => ({ name, password })} onClose=${onClose}>
    ${!given && html`<${Field} label="Name" wide><input value=${name} autofocus autocomplete="off" spellcheck="false" onInput=${(event) => setName(event.target.value)} /><//>`}
    <${Field} label="Password" wide hint="It is sent to the broker and kept nowhere else."><input type="password" value=${password} autocomplete="new-password" onInput=${(event) => setPassword(event.target.value)} /><//>
  <//>`;
}

// -- rules ------------------------------------------------------------------------------------------------

function Rules({ cluster }) {
  const state = useData(`${cluster}/acls`, listParams());
  const words = useData(`${cluster}/acls/words`);
  const [adding, setAdding] = useState(false);
  const after = (done) => done && state.reload();
  const remove = (row) => {
    const body = { ...row, operations: row.operation, name: row.resource === "cluster" ? "" : row.name, deny: row.permission === "deny", prefix: row.pattern === "prefixed" };
    change(`${cluster}/acls/delete`, body).then(after, said);
  };
  const columns = [
    { key: "principal", title: "Who", sort: true, render: (row) => html`<span class="strong">${row.principal}</span>` },
    { key: "permission", title: "", sort: false, render: (row) => html`<${Badge} tone=${row.permission === "deny" ? "severe" : "good"}>${row.permission === "deny" ? "may not" : "may"}<//>` },
    { key: "operation", title: "Do what", sort: true, render: (row) => row.operation },
    { key: "resource", title: "With what", sort: true, render: (row) => html`${row.resource} ${row.resource !== "cluster" && html`<b>${row.name}${row.pattern === "prefixed" ? "…" : ""}</b>`}` },
    { key: "host", title: "From", wide: true, render: (row) => (row.host === "*" ? html`<span class="quiet-text">anywhere</span>` : row.host) },
    { key: "act", title: html`<span class="visually-hidden">Change</span>`, number: true, render: (row) => !isReadOnly() && html`<${Button} kind="danger-quiet small" label=${`Delete the rule ${row.principal} ${row.operation} ${row.resource} ${row.name}`} onClick=${() => remove(row)}>Delete<//>` },
  ];
  const none = html`<${Empty} title=${state.data?.all ? "No rule is like that." : "No rules."}>${!state.data?.all && html`<p>Without an authorizer everybody may do everything. With one, rules say who may do what.</p><${Command} line="forebay acl add User:ada read topic orders" />`}<//>`;
  return html`<div class="toolbar">
      <${Search} placeholder="Search rules" />
      ${!isReadOnly() && html`<${Button} kind="primary" onClick=${() => setAdding(true)}>Add rule<//>`}
    </div>
    <${List} state=${state} columns=${columns} keyOf=${(row) => Object.values(row).join(" ")} label="Access rules" empty=${none} />
    <${Test} cluster=${cluster} words=${words.data} />
    ${adding && html`<${AddRule} cluster=${cluster} words=${words.data} onClose=${(done) => { setAdding(false); after(done); }} />`}`;
}

function useRule() {
  const [rule, setRule] = useState({ principal: "", operations: "read", resource: "topic", name: "", host: "", prefix: false, deny: false });
  return [rule, (changed) => setRule((before) => ({ ...before, ...changed }))];
}

function RuleFields({ rule, set, words }) {
  const resources = Object.keys(words ?? { topic: [] });
  const operations = words?.[rule.resource] ?? ["read"];
  return html`<${Field} label="Who" hint="A user, or User:* for everybody"><input value=${rule.principal} spellcheck="false" autocomplete="off" onInput=${(event) => set({ principal: event.target.value })} /><//>
    <${Field} label="Do what"><select value=${rule.operations} onChange=${(event) => set({ operations: event.target.value })}>${operations.map((word) => html`<option key=${word}>${word}</option>`)}</select><//>
    <${Field} label="With what"><select value=${rule.resource} onChange=${(event) => set({ resource: event.target.value, operations: words?.[event.target.value]?.[0] ?? "all" })}>${resources.map((word) => html`<option key=${word}>${word}</option>`)}</select><//>
    ${rule.resource !== "cluster" && html`<${Field} label="Of what name" hint="* for all"><input value=${rule.name} spellcheck="false" autocomplete="off" onInput=${(event) => set({ name: event.target.value })} /><//>`}`;
}

function AddRule({ cluster, words, onClose }) {
  const [rule, set] = useRule();
  return html`<${Form} title="Add rule" path=${`${cluster}/acls/add`} body=${() => rule} onClose=${onClose}>
    <${RuleFields} rule=${rule} set=${set} words=${words} />
    <${Field} label="From" hint="An address or a network; empty is anywhere"><input value=${rule.host} spellcheck="false" autocomplete="off" onInput=${(event) => set({ host: event.target.value })} /><//>
    <div class="field">
      ${rule.resource !== "cluster" && html`<label class="toggle"><input type="checkbox" checked=${rule.prefix} onChange=${(event) => set({ prefix: event.target.checked })} /><span>All names that begin so</span></label>`}
      <label class="toggle"><input type="checkbox" checked=${rule.deny} onChange=${(event) => set({ deny: event.target.checked })} /><span>Deny it</span></label>
    </div>
  <//>`;
}

function Test({ cluster, words }) {
  const [rule, set] = useRule();
  const [answer, setAnswer] = useState(null);
  const ask = async (event) => {
    event.preventDefault();
    try {
      setAnswer(await get(`${cluster}/acls/test`, { principal: rule.principal, operation: rule.operations, resource: rule.resource, name: rule.name }));
    } catch (error) {
      setAnswer({ error: error.message });
    }
  };
  return html`<h2 class="part">May somebody do something?</h2>
    <${Card}>
      <form class="form" onSubmit=${ask}>
        <${RuleFields} rule=${rule} set=${set} words=${words} />
        <div class="dialog-actions wide">
          ${answer && html`<p class="answer" role="status">${answer.error ? answer.error : html`<${Badge} tone=${answer.allowed ? "good" : "severe"}>${answer.allowed ? "yes" : "no"}<//> ${answer.because}`}</p>`}
          <${Button} type="submit">Ask<//>
        </div>
      </form>
    <//>`;
}

// -- quotas -----------------------------------------------------------------------------------------------

function Quotas({ cluster }) {
  const state = useData(`${cluster}/quotas`, listParams());
  const [adding, setAdding] = useState(false);
  const after = (done) => done && state.reload();
  const remove = (row) => change(`${cluster}/quotas/delete`, { parts: row.parts, key: row.key }).then(after, said);
  const columns = [
    { key: "entity", title: "For", sort: true, render: (row) => html`<span class="strong">${row.entity}</span>` },
    { key: "key", title: "What", sort: true, render: (row) => html`<code>${row.key}</code>` },
    { key: "value", title: "At most", number: true, render: (row) => `${count(row.value)}${row.key.endsWith("percentage") ? " %" : "/s"}` },
    { key: "act", title: html`<span class="visually-hidden">Change</span>`, number: true, render: (row) => !isReadOnly() && html`<${Button} kind="danger-quiet small" label=${`Delete ${row.key} of ${row.entity}`} onClick=${() => remove(row)}>Delete<//>` },
  ];
  const none = html`<${Empty} title=${state.data?.all ? "No quota is like that." : "No quotas."}>${!state.data?.all && html`<p>A quota limits what a user, a client id or an address may use of each broker.</p><${Command} line="forebay quota set --user ada producer_byte_rate=1048576" />`}<//>`;
  return html`<div class="toolbar">
      <${Search} placeholder="Search quotas" />
      ${!isReadOnly() && html`<${Button} kind="primary" onClick=${() => setAdding(true)}>Set quota<//>`}
    </div>
    <${List} state=${state} columns=${columns} keyOf=${(row) => `${row.entity} ${row.key}`} label="Quotas" empty=${none} />
    ${adding && html`<${SetQuota} cluster=${cluster} onClose=${(done) => { setAdding(false); after(done); }} />`}`;
}

function SetQuota({ cluster, onClose }) {
  const keys = useData(`${cluster}/quotas/keys`);
  const [kind, setKind] = useState("user");
  const [name, setName] = useState("");
  const [key, setKey] = useState("producer_byte_rate");
  const [value, setValue] = useState("");
  const body = () => ({ parts: { [kind]: name.trim() === "" ? null : name.trim() }, key, value });
  return html`<${Form} title="Set quota" path=${`${cluster}/quotas/set`} body=${body} onClose=${onClose}>
    <${Field} label="For"><select value=${kind} onChange=${(event) => setKind(event.target.value)}><option value="user">user</option><option value="client-id">client id</option><option value="ip">address</option></select><//>
    <${Field} label="Named" hint="Empty: all that have none of their own"><input value=${name} spellcheck="false" autocomplete="off" onInput=${(event) => setName(event.target.value)} /><//>
    <${Field} label="What"><select value=${key} onChange=${(event) => setKey(event.target.value)}>${(keys.data ?? [key]).map((each) => html`<option key=${each}>${each}</option>`)}</select><//>
    <${Field} label="At most" hint=${key.endsWith("percentage") ? "percent of a core" : "a second"}><input value=${value} inputmode="decimal" onInput=${(event) => setValue(event.target.value)} /><//>
  <//>`;
}
