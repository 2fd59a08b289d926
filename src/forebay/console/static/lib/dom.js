// What every module of the console needs of Preact, htm and signals.
import { cloneElement, h, render, Fragment } from "preact";
import { useEffect, useMemo, useRef, useState, useCallback, useLayoutEffect } from "preact/hooks";
import { signal, computed, effect, batch } from "@preact/signals";
import htm from "htm";

export const html = htm.bind(h);
export {
  cloneElement, h, render, Fragment,
  useEffect, useMemo, useRef, useState, useCallback, useLayoutEffect,
  signal, computed, effect, batch,
};
