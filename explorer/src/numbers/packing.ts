// Packs whole operands into a link: JSON, deflated, in the letters that an address may
// have.

/** The most elements of one operand that a link holds: 64 x 64. */
export const MOST_PACKED = 4096;

/** Bits in hexadecimal, by operand; ``codes`` are those of the metadata. */
export type Packed = Record<string, string[]>;

export async function packed(operands: Packed): Promise<string> {
  const lists = Object.entries(operands).map(([name, bits]) => [name, bits.join()]);
  const text = JSON.stringify(Object.fromEntries(lists));
  const deflate = new CompressionStream("deflate-raw");
  const stream = new Blob([text]).stream().pipeThrough(deflate);
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const letters = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** The inverse of ``packed``; null for what nobody packed. */
export async function unpacked(text: string): Promise<Packed | null> {
  try {
    const letters = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
    const inflate = new DecompressionStream("deflate-raw");
    const stream = new Blob([bytes]).stream().pipeThrough(inflate);
    const found = (await new Response(stream).json()) as Record<string, unknown>;
    const lists = Object.entries(found).map(([name, bits]) => [name, String(bits).split(",")]);
    return Object.fromEntries(lists) as Packed;
  } catch {
    return null;
  }
}
