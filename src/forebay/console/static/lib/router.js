// Addresses: /CLUSTER/PAGE/REST?QUERY. Every view has one, so it can be sent to a colleague.
import { signal } from "./dom.js";

function parse() {
  const parts = location.pathname.split("/").filter(Boolean).map(decodeURIComponent);
  return {
    cluster: parts[0] ?? "",
    page: parts[1] ?? "",
    rest: parts.slice(2),
    query: Object.fromEntries(new URLSearchParams(location.search)),
    key: location.pathname,
  };
}

export const route = signal(parse());

/** The address of a view: href("local", ["topics", "orders"], {tab: "settings"}). */
export function href(cluster, parts = [], query = {}) {
  const path = [cluster, ...[].concat(parts)].map((part) => encodeURIComponent(part)).join("/");
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) search.set(name, value);
  }
  const text = search.toString();
  return `/${path}${text ? `?${text}` : ""}`;
}

export function go(url, { replace = false } = {}) {
  if (url === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", url);
  const before = route.value.key;
  route.value = parse();
  if (route.value.key !== before) window.scrollTo(0, 0);
}

/** Change a few parameters of this view's address. Typing in a search replaces, choosing pushes. */
export function setQuery(patch, { replace = true } = {}) {
  const query = { ...route.value.query, ...patch };
  const parts = [route.value.page, ...route.value.rest].filter(Boolean);
  go(href(route.value.cluster, parts, query), { replace });
}

addEventListener("popstate", () => {
  route.value = parse();
});

// Links inside the console change the view without loading the page anew.
addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='/']");
  if (!link || link.target || link.hasAttribute("download") || event.defaultPrevented) return;
  if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (link.pathname.startsWith("/api/")) return;
  event.preventDefault();
  go(link.pathname + link.search);
});
