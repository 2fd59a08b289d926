// Changes: the server says what would happen and the command line for it, the person agrees, then it is done.
import { html, signal, useState } from "./dom.js";
import { post, session } from "./api.js";
import { Button, Command, Dialog, toast } from "./ui.js";

const asked = signal(null);

/**
 * Ask the person and do it: await change("local/topics/orders/delete", {}). Resolves with the server's answer,
 * or null if the person did not want it. Rejects with an ApiError if the input is wrong, before anything is asked.
 */
export async function change(path, body = {}) {
  const question = await post(path, body);
  return new Promise((resolve) => {
    asked.value = { path, body, question, resolve };
  });
}

export function isReadOnly() {
  return session.value?.read_only ?? false;
}

/** Shows the open question. Once, in the shell. */
export function Question() {
  const one = asked.value;
  return one && html`<${Asking} key=${one.path} ...${one} />`;
}

function Asking({ path, body, question, resolve }) {
  const [typed, setTyped] = useState("");
  const [running, setRunning] = useState(false);
  const [problem, setProblem] = useState("");
  const close = (answer) => {
    asked.value = null;
    resolve(answer);
  };
  const act = async (event) => {
    event.preventDefault();
    setRunning(true);
    setProblem("");
    try {
      const answer = await post(path, { ...body, confirmed: true });
      toast(answer.done, "good", answer.command);
      close(answer);
    } catch (error) {
      setProblem(error.message);
      setRunning(false);
    }
  };
  const ready = !question.danger || typed === question.name;
  return html`<${Dialog} title=${question.question} onClose=${() => close(null)}>
    <form onSubmit=${act}>
      ${question.details.length > 0 && html`<ul class="details">${question.details.map((line) => html`<li key=${line}>${line}</li>`)}</ul>`}
      ${question.danger &&
      html`<label class="field">
        <span class="field-label">This cannot be undone. Type <b>${question.name}</b> to go on.</span>
        <input value=${typed} onInput=${(event) => setTyped(event.target.value)} autocomplete="off" spellcheck="false" autofocus />
      </label>`}
      <p class="quiet-text">The same on the command line:</p>
      <${Command} line=${question.command} />
      ${problem && html`<p class="trouble" role="alert">${problem}</p>`}
      <div class="dialog-actions">
        <${Button} onClick=${() => close(null)}>Cancel<//>
        <${Button} type="submit" kind=${question.danger ? "danger" : "primary"} disabled=${!ready || running}>
          ${running ? "Working …" : question.verb}
        <//>
      </div>
    </form>
  <//>`;
}
