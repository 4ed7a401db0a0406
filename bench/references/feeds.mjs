/**
 * How messages come to a reference: a server that takes them by POST gets them from a process of its own. Others bring
 * a `feed` with the same methods.
 */
export function feedOf(reference, publisher) {
  const { port, publish, wrap } = reference;
  const start = (channels, more) =>
    publisher.call('start', { port, wrap, paths: channels.map(publish), ...more });
  return (
    reference.feed ?? {
      /** Before anybody reads. */
      open: async () => undefined,
      /** So many messages a second over all channels. */
      paced: (channels, rate) => start(channels, { rate }),
      /** As many as `allow` lets through. */
      saturate: (channels) => start(channels, {}),
      allow: (upTo) => publisher.call('allow', upTo),
      stop: () => publisher.call('stop'),
    }
  );
}
