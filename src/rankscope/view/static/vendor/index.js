/** The libraries that the page uses, under one name each. Versions and checksums: vendor.json. */

import htm from "./htm.js";
import { h } from "./preact.js";

export { Fragment, h, render } from "./preact.js";
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./hooks.js";
export { batch, computed, effect, signal, useComputed, useSignal, useSignalEffect } from "./signals.js";
export const html = htm.bind(h);
