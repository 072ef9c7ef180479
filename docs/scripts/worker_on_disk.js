// Browsers refuse workers in pages that are opened from the disk. Material searches in a worker, so that there
// the script of the worker runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.frame = frame.contentWindow;
      this.frame.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = frame.contentDocument.createElement("script");
      script.src = new URL(url, document.baseURI);
      // messages wait until the script listens
      this.ready = new Promise(resolve => { script.onload = resolve; });
      frame.contentDocument.body.append(script);
    }
    postMessage(data) {
      this.ready.then(() => this.frame.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
