// Sending a message to a topic.
import { html, useState } from "../lib/dom.js";
import { change } from "../lib/change.js";
import { Button, Dialog, Field } from "../lib/ui.js";

/** draft: {key, value, headers}, to begin with. */
export function Produce({ base, draft, onClose }) {
  const [key, setKey] = useState(draft.key ?? "");
  const [value, setValue] = useState(draft.value ?? "");
  const [noValue, setNoValue] = useState(draft.value === null);
  const [headers, setHeaders] = useState((draft.headers ?? []).map(([name, text]) => `${name}=${text}`).join("\n"));
  const [partition, setPartition] = useState("");
  const [problem, setProblem] = useState(null);
  const broken = !noValue && looksLikeJson(value) && !parses(value);
  const submit = async (event) => {
    event.preventDefault();
    setProblem(null);
    const pairs = headers.split("\n").filter((line) => line.trim()).map((line) => {
      const at = line.indexOf("=");
      return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1)];
    });
    try {
      const done = await change(`${base}/produce`, { key: key === "" ? null : key, value: noValue ? null : value, headers: pairs, partition });
      if (done) onClose(true);
    } catch (error) {
      setProblem(error);
    }
  };
  const wrong = (field) => (problem?.field === field ? problem.message : "");
  return html`<${Dialog} wide title="Send a message" onClose=${() => onClose(false)}>
    <form class="form" onSubmit=${submit}>
      <${Field} label="Key" error=${wrong("key")} hint="Empty: no key."><input value=${key} onInput=${(event) => setKey(event.target.value)} autocomplete="off" spellcheck="false" /><//>
      <${Field} label="Partition" error=${wrong("partition")} hint="Empty: by the key."><input value=${partition} onInput=${(event) => setPartition(event.target.value)} inputmode="numeric" /><//>
      <${Field} label="Value" wide error=${wrong("value")} hint=${broken ? "This begins like JSON, and is not." : ""}><textarea rows="9" value=${value} disabled=${noValue} onInput=${(event) => setValue(event.target.value)} spellcheck="false" autofocus></textarea><//>
      <label class="toggle wide"><input type="checkbox" checked=${noValue} onChange=${(event) => setNoValue(event.target.checked)} /><span>No value (deletes the key from a compacted topic)</span></label>
      <${Field} label="Headers" wide error=${wrong("headers")} hint="One name=value on each line."><textarea rows="2" value=${headers} onInput=${(event) => setHeaders(event.target.value)} spellcheck="false"></textarea><//>
      ${problem && !problem.field && html`<p class="trouble wide" role="alert">${problem.message}</p>`}
      <div class="dialog-actions wide"><${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} type="submit" kind="primary">Continue<//></div>
    </form>
  <//>`;
}

function looksLikeJson(text) {
  return /^\s*[{[]/.test(text);
}

function parses(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
