// The colours.  All of them come with the catalogue, from Python, which draws pictures
// in the same ones.  Registers and banks have those of as many lanes.

import type { Catalogue } from "../records/catalogue.js";

export interface Theme {
  dark: boolean;
  page: string;
  ink: string;
  faint: string;
  frame: string;
  hair: string;
  band: string;
  /** Between parts that belong together. */
  line: string;
  accent: string;
  warning: string;
  /** The 32 colours of lanes. */
  lanes: string[];
}

/** What the style sheet calls --accent and --warning. */
const SIGNALS = {
  light: { accent: "#0b57a8", warning: "#a3260f" },
  dark: { accent: "#8fc1ff", warning: "#ff9d85" },
};

export function themeOf({ inks, lanes }: Catalogue, dark: boolean): Theme {
  const name = dark ? "dark" : "light";
  const { page, text, small, outline, hairline, band } = inks[name];
  // Between dark cells, light lines would be louder than what they separate.
  const rest = { frame: dark ? page : outline, hair: hairline, band, line: band, ...SIGNALS[name] };
  return { dark, page, ink: text, faint: small, ...rest, lanes: lanes[name] };
}

/** The colours of the lanes of warpgroups; their warps look alike. */
export function laneColours(_: Catalogue, { lanes }: Theme): string[] {
  return Array.from({ length: 256 }, (_, lane) => lanes[lane % 32]);
}

/** Registers 0 to 7 have the eight hues, the next eight their second shade … */
export function registerColour(register: number, { lanes }: Theme): string {
  return lanes[(register % 8) * 4 + ((register >> 3) % 4)];
}

/** Four banks in a row have the shades of one hue. */
export function bankColour(bank: number, { lanes }: Theme): string {
  return lanes[bank % 32];
}

/** What elements look like that no lane holds. */
export function plainColour({ band }: Theme): string {
  return band;
}

/** The colours of 0, 1, 2 … worked out once. */
export function colours(
  count: number,
  of: (value: number, theme: Theme) => string,
  theme: Theme,
): string[] {
  return Array.from({ length: count }, (_, value) => of(value, theme));
}
