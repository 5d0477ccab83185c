// Makes search work from a folder.  Browsers start no worker for a page that was
// opened as a file.  There, a hidden frame runs the worker's script instead.

if (location.protocol === "file:") {
  class FrameWorker extends EventTarget {
    #waiting = [];
    #window = null;

    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.body.append(frame);
      const inner = frame.contentWindow;
      // What the script of a worker expects around it.
      inner.postMessage = (data) => this.#tell(this, data, window);
      inner.importScripts = (...scripts) =>
        scripts.reduce((before, each) => before.then(() => load(inner, each)), Promise.resolve());
      load(inner, address).then(() => {
        this.#window = inner;
        for (const data of this.#waiting) this.postMessage(data);
      });
    }

    postMessage(data) {
      if (!this.#window) this.#waiting.push(data);
      else this.#tell(this.#window, data, this.#window);
    }

    terminate() {}

    #tell(target, data, scope) {
      setTimeout(() => {
        target.dispatchEvent(new scope.MessageEvent("message", { data }));
      });
    }
  }

  const load = (inner, address) =>
    new Promise((done, failed) => {
      const script = inner.document.createElement("script");
      script.src = new URL(address, location.href);
      script.onload = done;
      script.onerror = failed;
      inner.document.body.append(script);
    });

  // The theme's worker asks for this name.
  window.IFrameWorker = FrameWorker;
  window.Worker = FrameWorker;
}
