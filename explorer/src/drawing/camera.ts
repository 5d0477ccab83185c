// Moves and zooms the picture.  A drag or the wheel moves it where it is larger than
// the window; a pinch, the wheel with Ctrl, or a double click zooms in.

export interface Moves {
  /** Whether there is something to move to. */
  movable: () => boolean;
  move: (dx: number, dy: number) => void;
  /** Come closer by a factor, to a point of the window. */
  zoom: (factor: number, x: number, y: number) => void;
  /** The pointer is over a point; null when it left. */
  point: (at: { x: number; y: number } | null) => void;
  click: (at: { x: number; y: number }) => void;
}

const STILL = 5; // pixels: what moves less is a click

export function listenToMoves(host: HTMLElement, moves: Moves): void {
  const down = new Map<number, { x: number; y: number }>();
  let travelled = 0;
  const local = (event: MouseEvent) => {
    const box = host.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  host.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    down.set(event.pointerId, local(event));
    if (down.size === 1) travelled = 0;
  });

  host.addEventListener("pointermove", (event) => {
    const now = local(event);
    const before = down.get(event.pointerId);
    if (!before) return moves.point(now);
    const [dx, dy] = [now.x - before.x, now.y - before.y];
    travelled += Math.hypot(dx, dy);
    down.set(event.pointerId, now);
    if (down.size === 2) pinch(down, event.pointerId, before, moves);
    else if (!moves.movable()) moves.point(now);
    else if (travelled > STILL) {
      host.setPointerCapture(event.pointerId);
      moves.move(dx, dy);
    }
  });

  const up = (event: PointerEvent) => down.delete(event.pointerId);
  host.addEventListener("pointerup", up);
  host.addEventListener("pointercancel", up);
  host.addEventListener("pointerleave", (event) => {
    up(event);
    moves.point(null);
  });
  host.addEventListener("click", (event) => {
    if (travelled <= STILL || !moves.movable()) moves.click(local(event));
  });
  host.addEventListener("dblclick", (event) => {
    const { x, y } = local(event);
    moves.zoom(2, x, y);
  });
  host.addEventListener("wheel", (event) => wheel(event, local(event), moves), {
    passive: false,
  });
}

/** Two fingers: what is between them stays between them. */
function pinch(
  down: Map<number, { x: number; y: number }>,
  moved: number,
  before: { x: number; y: number },
  moves: Moves,
): void {
  const now = down.get(moved)!;
  const [other] = [...down].filter(([id]) => id !== moved).map(([, at]) => at);
  const apart = (at: { x: number; y: number }) =>
    Math.max(10, Math.hypot(at.x - other.x, at.y - other.y));
  const middle = { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 };
  moves.move((now.x - before.x) / 2, (now.y - before.y) / 2);
  moves.zoom(apart(now) / apart(before), middle.x, middle.y);
}

/** Without Ctrl the wheel belongs to the page, unless there is something to move. */
function wheel(event: WheelEvent, at: { x: number; y: number }, moves: Moves): void {
  if (event.ctrlKey || event.metaKey) {
    moves.zoom(Math.exp(-event.deltaY / 300), at.x, at.y);
  } else if (moves.movable()) {
    moves.move(-event.deltaX, -event.deltaY);
  } else return;
  event.preventDefault();
}
