// Search runs in a worker. Browsers start none for pages opened from disk: there, a hidden frame does its work.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(script) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "Search";
      document.body.append(frame);
      this.inside = frame.contentWindow;
      window.addEventListener("message", (event) => {
        if (event.source !== this.inside) return;
        const answer = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(answer);
        if (this.onmessage) this.onmessage(answer);
      });
      this.ready = new Promise((loaded) => {
        const page = this.inside.document;
        page.open();
        page.write("<!doctype html><title>Search</title>");
        const first = page.createElement("script");
        first.textContent = "self.postMessage = (data) => parent.postMessage(data, '*')";
        const worker = page.createElement("script");
        worker.src = String(script);
        worker.onload = loaded;
        page.head.append(first, worker);
        page.close();
      });
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
  window.Worker = window.IFrameWorker;
}
