import { connect } from 'node:net';

/**
 * One HTTP/1.1 request over a plain socket: yields the body as it arrives, without chunk headers. It is minimal because
 * the reader shares the machine with the measured server.
 */
export class SseSocket {
  state = 'head';
  head = '';
  size = '';
  left = 0;
  closed = false;

  /**
   * @param onData is called with bytes of the body. @param onEnd is called once, when the body or the connection has
   *   ended.
   */
  constructor({ host = '127.0.0.1', port, path, headers = {}, method = 'GET' }, onData, onEnd) {
    this.onData = onData;
    this.onEnd = onEnd;
    this.opened = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    this.socket = connect({ host, port, noDelay: true });
    const lines = Object.entries({
      host: `${host}:${port}`,
      accept: 'text/event-stream',
      ...headers,
    });
    const text = lines.map(([name, value]) => `${name}: ${value}\r\n`).join('');
    this.socket.write(`${method} ${path} HTTP/1.1\r\n${text}\r\n`);
    this.socket.on('data', (bytes) => this.take(bytes));
    this.socket.on('error', (error) => this.reject(error));
    this.socket.on('close', () => this.end());
  }

  end() {
    if (this.closed) return;
    this.closed = true;
    this.reject(new Error('closed before the answer'));
    this.onEnd?.();
  }

  take(bytes) {
    let at = 0;
    if (this.state === 'head') {
      this.head += bytes.latin1Slice();
      const end = this.head.indexOf('\r\n\r\n');
      if (end === -1) return;
      const head = this.head.slice(0, end);
      at = bytes.length - (this.head.length - end - 4);
      this.head = '';
      if (!head.startsWith('HTTP/1.1 200')) return this.reject(new Error(head));
      this.state = /transfer-encoding:\s*chunked/i.test(head) ? 'size' : 'plain';
      this.resolve();
    }
    if (this.state === 'plain') {
      if (at < bytes.length) this.onData(at === 0 ? bytes : bytes.subarray(at));
      return;
    }
    while (at < bytes.length) {
      if (this.state === 'data') {
        const take = Math.min(this.left, bytes.length - at);
        this.onData(bytes.subarray(at, at + take));
        at += take;
        this.left -= take;
        if (this.left === 0) [this.state, this.left] = ['gap', 2];
      } else if (this.state === 'gap') {
        const skip = Math.min(this.left, bytes.length - at);
        at += skip;
        this.left -= skip;
        if (this.left === 0) this.state = 'size';
      } else {
        const byte = bytes[at];
        at += 1;
        if (byte === 10) {
          this.left = Number.parseInt(this.size, 16);
          this.size = '';
          if (this.left === 0) return this.end();
          this.state = 'data';
        } else this.size += String.fromCharCode(byte);
      }
    }
  }

  pause() {
    this.socket.pause();
  }

  resume() {
    this.socket.resume();
  }

  destroy() {
    this.socket.destroy();
  }
}
