// One message: its key, value and headers as JSON, text or hex; copied, downloaded, sent again.
import { html, useState } from "../lib/dom.js";
import { useData } from "../lib/data.js";
import { change, isReadOnly } from "../lib/change.js";
import { Badge, Button, Copy, Dialog, Loaded, toast } from "../lib/ui.js";
import { ago, bytes, count, moment } from "../lib/format.js";
import { hexDump, Json, prettyText } from "../lib/json.js";

/** A key or a value in one line. */
export function Preview({ content }) {
  if (content.kind === "null") return html`<span class="quiet-text">null</span>`;
  if (content.kind === "empty") return html`<span class="quiet-text">empty</span>`;
  if (content.kind === "hex") return html`<code class="quiet-text" title="Not text">${(content.text.slice(0, 64).match(/.{1,2}/g) ?? []).join(" ")}${content.size > 32 ? " …" : ""}</code>`;
  return html`<code>${content.text}${content.cut ? " …" : ""}</code>`;
}

export function Message({ cluster, topic, place, onClose, onCopy }) {
  const [partition, offset] = place.split("-");
  const base = `${cluster}/topics/${encodeURIComponent(topic)}/messages/${encodeURIComponent(partition)}/${encodeURIComponent(offset)}`;
  const state = useData(base);
  const resend = () => change(`${base}/resend`, {}).then((done) => done && onClose(), (error) => toast(error.message, "severe"));
  return html`<${Dialog} wide title=${`${topic}, partition ${partition}, offset ${offset}`} onClose=${onClose}>
    <${Loaded} state=${state}>
      ${(message) => html`<div class="message">
        <p class="quiet-text">${moment(message.timestamp)} · ${ago(message.timestamp)} · ${bytes(message.size)}</p>
        <${Content} title="Key" content=${message.key} file=${`/api/${base}/key`} />
        <${Content} title="Value" content=${message.value} file=${`/api/${base}/value`} />
        ${message.headers.length > 0 && html`<section><h3>Headers</h3>
          <dl class="headers">${message.headers.map(([name, content], at) => html`<dt key=${`n${at}`}>${name}</dt><dd key=${`v${at}`}><${Preview} content=${content} /></dd>`)}</dl>
          ${message.header_count > message.headers.length && html`<p class="quiet-text">and ${count(message.header_count - message.headers.length)} more</p>`}
        </section>`}
        <div class="dialog-actions">
          <${Copy} label="Copy link" text=${location.href} />
          ${!isReadOnly() && isText(message) && html`<${Button} onClick=${() => onCopy(draftOf(message))}>Edit and send<//>`}
          ${!isReadOnly() && html`<${Button} onClick=${resend}>Send again<//>`}
        </div>
      </div>`}
    <//>
  <//>`;
}

/** True if the whole message can be edited as text. */
function isText(message) {
  return [message.key, message.value].every((content) => content.kind !== "hex" && !content.cut);
}

function draftOf(message) {
  const text = (content) => (content.kind === "null" ? null : content.text);
  return { key: text(message.key), value: text(message.value), headers: message.headers.filter(([, content]) => content.kind !== "hex").map(([name, content]) => [name, content.text]) };
}

function Content({ title, content, file }) {
  const forms = content.kind === "json" ? ["json", "text"] : content.kind === "hex" ? ["hex"] : ["text"];
  const [form, setForm] = useState(forms[0]);
  const none = content.kind === "null" || content.kind === "empty";
  const whole = form === "json" ? () => prettyText(content.text) : () => content.text;
  return html`<section>
    <header class="content-head">
      <h3>${title}</h3>
      ${none ? html`<span class="quiet-text">${content.kind}</span>` : html`<${Badge}>${content.kind}<//><span class="quiet-text">${bytes(content.size)}</span>`}
      ${content.schema_id !== undefined && html`<${Badge} tone="info" title="It begins like a value of a schema registry">schema ${content.schema_id}<//>`}
      <span class="grow"></span>
      ${forms.length > 1 && forms.map((each) => html`<${Button} key=${each} kind="small" pressed=${each === form} onClick=${() => setForm(each)}>${each === "json" ? "Indented" : "As it is"}<//>`)}
      ${!none && html`<${Copy} text=${whole()} /><a class="button quiet small" href=${file} download>Download</a>`}
    </header>
    ${!none && (form === "json" ? html`<${Json} text=${content.text} />` : html`<pre class="content">${form === "hex" ? hexDump(content.text) : content.text}</pre>`)}
    ${content.cut && html`<p class="quiet-text">The first part of ${bytes(content.size)}. <a href=${file} download>Download all of it</a></p>`}
  </section>`;
}
