// What a person chose in this browser: the theme, favourites. Nothing of it leaves the browser.
import { signal, effect } from "./dom.js";

function stored(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(`forebay.${name}`)) ?? fallback;
  } catch {
    return fallback;
  }
}

function kept(name, fallback) {
  const value = signal(stored(name, fallback));
  effect(() => {
    try {
      localStorage.setItem(`forebay.${name}`, JSON.stringify(value.value));
    } catch {
      // A browser that keeps nothing still shows the console.
    }
  });
  return value;
}

/** system, light or dark. */
export const theme = kept("theme", "system");
const favourites = kept("favourites", {});

effect(() => {
  document.documentElement.dataset.theme = theme.value;
});

/** The names that the person has starred in a cluster: favouritesOf("local", "topics"). */
export function favouritesOf(cluster, kind) {
  return favourites.value[`${cluster}/${kind}`] ?? [];
}

export function toggleFavourite(cluster, kind, name) {
  const key = `${cluster}/${kind}`;
  const names = new Set(favourites.value[key] ?? []);
  if (!names.delete(name)) names.add(name);
  favourites.value = { ...favourites.value, [key]: [...names] };
}
