// Which colour is it?  The colours of lanes come with the catalogue, from Python,
// which draws pictures in the same ones.  Those of registers and banks are worked
// out here in OKLCH, where equal steps look equal.

import type { Catalogue } from "./catalogue.js";

type Triple = [number, number, number];

export interface Theme {
  dark: boolean;
  page: string;
  ink: string;
  faint: string;
  line: string;
  accent: string;
  warning: string;
}

export const THEMES: Record<"light" | "dark", Theme> = {
  light: {
    dark: false,
    page: "#fbfaf8",
    ink: "#1c1b19",
    faint: "#5c5952",
    line: "#d9d5cc",
    accent: "#0b57a8",
    warning: "#a3260f",
  },
  dark: {
    dark: true,
    page: "#161719",
    ink: "#f2f0ec",
    faint: "#a9a69e",
    line: "#3a3c40",
    accent: "#8fc1ff",
    warning: "#ff9d85",
  },
};

/** The colours of the lanes of warpgroups; their warps look alike. */
export function laneColours({ lanes }: Catalogue, theme: Theme): string[] {
  const warp = theme.dark ? lanes.dark : lanes.light;
  return Array.from({ length: 256 }, (_, lane) => warp[lane % 32]);
}

export function registerColour(register: number, theme: Theme): string {
  const lightness = theme.dark
    ? 0.36 + 0.1 * (register % 2)
    : 0.88 - 0.1 * (register % 2);
  return colour(lightness, 0.085, (register * 137.5) % 360);
}

/** Banks 0 to 31 around the wheel, every eighth step a change of depth. */
export function bankColour(bank: number, theme: Theme): string {
  const step = 0.035 * (bank % 4);
  return colour(theme.dark ? 0.34 + step : 0.92 - step, 0.09, (bank >> 2) * 45 + 20);
}

/** What elements look like that no lane holds. */
export function plainColour(theme: Theme): string {
  return theme.dark ? "#2b2d31" : "#eeebe4";
}

function colour(lightness: number, chroma: number, hue: number): string {
  return hex(linearRgb(lightness, chroma, hue));
}

/** The colours of 0, 1, 2 … worked out once. */
export function colours(
  count: number,
  of: (value: number, theme: Theme) => string,
  theme: Theme,
): string[] {
  return Array.from({ length: count }, (_, value) => of(value, theme));
}

function linearRgb(lightness: number, chroma: number, hue: number): Triple {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
}

function hex(rgb: Triple): string {
  const channel = (value: number) => {
    const held = Math.min(1, Math.max(0, value));
    const gamma = held <= 0.0031308 ? 12.92 * held : 1.055 * held ** (1 / 2.4) - 0.055;
    return Math.round(255 * gamma)
      .toString(16)
      .padStart(2, "0");
  };
  return `#${rgb.map(channel).join("")}`;
}
