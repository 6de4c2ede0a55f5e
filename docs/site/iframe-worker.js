// Browsers start no worker from a file. In a site opened from files, the search's worker runs in a hidden frame instead.
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      const load = address => new Promise(done => {
        const script = this.scope.document.createElement("script");
        script.src = address;
        script.onload = done;
        this.scope.document.body.append(script);
      });
      this.scope.importScripts = (...all) => all.reduce((before, each) => before.then(() => load(each)), Promise.resolve());
      this.scope.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}));
      this.ready = load(url);
    }
    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new this.scope.MessageEvent("message", {data})));
    }
    terminate() {
      this.scope.frameElement.remove();
    }
  };
}
