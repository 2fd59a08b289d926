// Data of the server in components: kept while it is asked for again, refreshed after each look at the cluster.
import { useCallback, useEffect, useRef, useState } from "./dom.js";
import { get } from "./api.js";
import { look } from "./live.js";

/** {data, error, loading, reload}. With `live`, it is asked for again after each look. */
export function useData(path, params = {}, { live = false } = {}) {
  const [state, setState] = useState({ data: null, error: null, loading: true });
  const key = JSON.stringify([path, params]);
  const running = useRef(null);

  const load = useCallback(
    async (fresh) => {
      if (!path) return;
      running.current?.abort();
      const controller = new AbortController();
      running.current = controller;
      setState((before) => ({ ...before, loading: true, ...(fresh ? { error: null } : {}) }));
      try {
        const data = await get(path, params, { signal: controller.signal });
        if (!controller.signal.aborted) setState({ data, error: null, loading: false });
      } catch (error) {
        if (controller.signal.aborted || error.name === "AbortError") return;
        setState((before) => ({ data: before.data, error, loading: false }));
      } finally {
        if (running.current === controller) running.current = null;
      }
    },
    [key],
  );

  const shownPath = useRef(path);
  useEffect(() => {
    if (shownPath.current !== path) {
      shownPath.current = path;
      setState({ data: null, error: null, loading: true });
    }
    load(true);
    return () => running.current?.abort();
  }, [key]);

  const number = live ? (look.value?.number ?? look.value?.problem ?? 0) : 0;
  const first = useRef(true);
  useEffect(() => {
    if (first.current) {
      first.current = false;
      return;
    }
    // One that takes longer than a look is waited for: else it would never come.
    if (live && !running.current) load(false);
  }, [number]);

  return { ...state, reload: () => load(false) };
}
