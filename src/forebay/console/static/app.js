// The shell: menu, the page of the address, the state of the connection, login.
import { html, render, useEffect, useState } from "./lib/dom.js";
import { loadSession, needsLogin, post, session } from "./lib/api.js";
import { go, href, route } from "./lib/router.js";
import { look, streamState, useLive } from "./lib/live.js";
import { Question } from "./lib/change.js";
import { Icon } from "./lib/icons.js";
import { theme } from "./lib/prefs.js";
import { Button, Empty, Field, Loading, Toasts, Trouble } from "./lib/ui.js";
import { details, pages } from "./pages/index.js";

function App() {
  const [error, setError] = useState(null);
  const load = () => {
    setError(null);
    loadSession().catch(setError);
  };
  useEffect(load, []);
  if (needsLogin.value) return html`<${Login} kind=${needsLogin.value} /><${Toasts} />`;
  if (error) return html`<main class="alone"><${Trouble} error=${error} retry=${load} /></main>`;
  if (!session.value) return html`<main class="alone"><${Loading} rows=${3} /></main>`;
  return html`<${Shell} />`;
}

function Shell() {
  const clusters = session.value.clusters;
  const { cluster, page } = route.value;
  const known = clusters.some((each) => each.name === cluster);
  useEffect(() => {
    if (!cluster || !page) go(href(known ? cluster : clusters[0].name, ["overview"]), { replace: true });
  }, [cluster, page]);
  useLive(known ? cluster : "", [], {}, {});
  if (!cluster || !page) return null;
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to the page</a>
    <div class="shell">
      <${Menu} clusters=${clusters} cluster=${cluster} page=${page} />
      <main id="main" tabindex="-1">
        ${session.value.read_only && html`<p class="banner">Read-only: nothing can be changed here.</p>`}
        <${Connection} />
        ${known
          ? html`<${CurrentPage} cluster=${cluster} />`
          : html`<${Empty} title=${`There is no cluster ${cluster} here.`}><a href=${href(clusters[0].name, ["overview"])}>Go to ${clusters[0].name}</a><//>`}
      </main>
    </div>
    <${Question} /><${Toasts} />`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function Menu({ clusters, cluster, page }) {
  const [open, setOpen] = useState(false);
  useEffect(() => setOpen(false), [route.value.key]);
  const themes = { system: "System theme", light: "Light theme", dark: "Dark theme" };
  const nextTheme = { system: "light", light: "dark", dark: "system" };
  return html`<nav class=${`menu${open ? " open" : ""}`} aria-label="Pages">
    <div class="menu-head">
      <a class="brand" href=${href(cluster, ["overview"])}><img src="/static/icon.svg" alt="" width="26" height="26" />Forebay</a>
      <button type="button" class="button quiet menu-button" aria-expanded=${open} aria-label="Menu" onClick=${() => setOpen(!open)}>
        <${Icon} name="menu" />
      </button>
    </div>
    <div class="menu-body">
      ${clusters.length > 1
        ? html`<label class="cluster-choice"
            ><span class="visually-hidden">Cluster</span
            ><select value=${cluster} onChange=${(event) => go(href(event.target.value, [page]))}>
              ${clusters.map((each) => html`<option key=${each.name} value=${each.name}>${each.name}</option>`)}
            </select></label
          >`
        : html`<p class="cluster-name" title=${clusters[0].bootstrap}>${shortAddress(clusters[0].bootstrap)}</p>`}
      <ul>
        ${pages.map(
          (each) => html`${each.group && html`<li class="menu-group" key=${`group-${each.group}`}>${each.group}</li>`}
            <li key=${each.id}>
              <a href=${href(cluster, [each.id])} aria-current=${each.id === page ? "page" : undefined}><${Icon} name=${each.icon} />${each.title}</a>
            </li>`,
        )}
      </ul>
      <div class="menu-foot">
        <button type="button" class="button quiet" onClick=${() => (theme.value = nextTheme[theme.value])}>
          <${Icon} name="moon" />${themes[theme.value]}
        </button>
        ${session.value.user &&
        html`<button type="button" class="button quiet" onClick=${logOut}><${Icon} name="users" />Log out ${session.value.user}</button>`}
      </div>
    </div>
  </nav>`;
}

/** The first of several addresses. */
function shortAddress(bootstrap) {
  const [first, ...more] = bootstrap.split(",");
  return more.length ? `${first} and ${more.length} more` : first;
}

async function logOut() {
  await post("logout");
  location.href = "/";
}

/** Says when the brokers or the console's server do not answer; what was seen last stays visible. */
function Connection() {
  if (streamState.value === "lost") {
    return html`<p class="banner severe" role="alert">No connection to the console. What you see may be old; it connects again by itself.</p>`;
  }
  if (look.value?.problem) {
    return html`<p class="banner severe" role="alert">The cluster does not answer: ${look.value.problem}</p>`;
  }
  return null;
}

function CurrentPage({ cluster }) {
  const { page, rest } = route.value;
  const [shown, setShown] = useState(null);
  const load = (rest.length && details[page]) || pages.find((each) => each.id === page)?.load;
  const key = `${page}${rest.length && details[page] ? "/detail" : ""}`;
  useEffect(() => {
    let gone = false;
    setShown(null);
    load?.().then(
      (module) => !gone && setShown({ key, Page: module.default }),
      (error) => !gone && setShown({ key, error }),
    );
    return () => (gone = true);
  }, [key]);
  if (!load) return html`<${Empty} title="There is no such page."><a href=${href(cluster, ["overview"])}>Go to the overview</a><//>`;
  if (!shown || shown.key !== key) return html`<${Loading} />`;
  if (shown.error) return html`<${Trouble} error=${shown.error} />`;
  return html`<${shown.Page} cluster=${cluster} rest=${rest} key=${key + rest.join("/")} />`;
}

function Login({ kind }) {
  const [problem, setProblem] = useState("");
  const [running, setRunning] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.target));
    setRunning(true);
    setProblem("");
    try {
      session.value = await post("login", given);
      needsLogin.value = null;
    } catch (error) {
      setProblem(error.message);
    }
    setRunning(false);
  };
  return html`<main class="alone" id="main">
    <form class="card login" onSubmit=${submit}>
      <h1><img src="/static/icon.svg" alt="" width="34" height="34" /> Forebay console</h1>
      ${kind === "password"
        ? html`<p class="quiet-text">Log in with a user of the cluster. What you may do here is what this user may do.</p>
            <${Field} label="User"><input name="user" autocomplete="username" required autofocus /><//>
            <${Field} label="Password"><input name="password" type="password" autocomplete="current-password" required /><//>`
        : html`<p class="quiet-text">Open the address that <code>forebay console</code> has printed, or paste its token here.</p>
            <${Field} label="Token"><input name="token" autocomplete="off" required autofocus /><//>`}
      ${problem && html`<p class="trouble" role="alert">${problem}</p>`}
      <${Button} type="submit" kind="primary" disabled=${running}>${running ? "Checking …" : "Log in"}<//>
    </form>
  </main>`;
}

const place = document.getElementById("app");
place.replaceChildren();
render(html`<${App} />`, place);
