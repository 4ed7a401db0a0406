import { describe, expect, it } from '@jest/globals';
import { OPEN_NETWORK } from './inside/preparation.js';
import { KubeError } from './kube-api.js';
import type { KubePod } from './kube-objects.js';
import { asSandboxError, problemInEvents, problemOf } from './pod-problems.js';

const images = { agent: 'agents:1', supervisor: 'service:1' };
const pod = (status: KubePod['status']): KubePod => ({
  metadata: { name: 'p' },
  ...(status && { status }),
});

describe('what is wrong with a pod', () => {
  it('is nothing while it starts', () => {
    const waiting = { waiting: { reason: 'PodInitializing' } };
    const status = { phase: 'Pending', containerStatuses: [{ name: 'agent', state: waiting }] };
    expect(problemOf(pod(status), images)).toBeUndefined();
    expect(problemOf(pod(undefined), images)).toBeUndefined();
  });

  it('is an open network', () => {
    const terminated = { exitCode: OPEN_NETWORK, message: 'the cluster does not enforce' };
    const initContainerStatuses = [{ name: 'prepare', state: { terminated } }];
    expect(problemOf(pod({ initContainerStatuses }), images)).toEqual({
      message: expect.stringMatching(/^the cluster does not enforce: use a network plugin/),
      mayPass: false,
    });
  });

  it.each([
    ['agent', 'agents:1 of SANDBOX_IMAGE'],
    ['supervisor', 'service:1 of SANDBOX_SUPERVISOR_IMAGE'],
  ])('is the image of the container %s', (name, named) => {
    const state = { waiting: { reason: 'ImagePullBackOff', message: 'no\n such   image' } };
    expect(problemOf(pod({ containerStatuses: [{ name, state }] }), images)).toEqual({
      message: `the image ${named} cannot be pulled (ImagePullBackOff): no such image`,
      mayPass: false,
    });
  });

  it('is told by events only, if nodes do not have its runtime', () => {
    const message = 'Failed to create pod sandbox: no runtime for "runsc" is configured';
    expect(problemInEvents([{ type: 'Normal', message: 'Scheduled' }])).toBeUndefined();
    expect(problemInEvents([{ type: 'Warning', message }])?.message).toMatch(
      /^the nodes do not have the runtime of SANDBOX_RUNTIME: Failed to create/,
    );
  });
});

it.each([
  [403, 'pods "p" is forbidden: exceeded quota: q', /^a quota of the namespace is exhausted/],
  [403, 'violates PodSecurity "restricted:latest": x', /^the namespace does not admit/],
  [403, 'pod rejected: RuntimeClass "x" not found', /^the cluster does not have the RuntimeClass/],
  [403, 'User "u" cannot create resource "pods"', /^a permission is missing in the cluster/],
  [404, 'namespaces "absent" not found', /^create the namespace or set KUBERNETES_NAMESPACE/],
  [401, 'Unauthorized', /^Kubernetes does not accept the credentials: check KUBECONFIG/],
  [503, 'later', /^Kubernetes answers 503: later/],
])('translates %i %s', (status, message, expected) => {
  expect(asSandboxError(new KubeError(status, '', message))).toMatchObject({
    kind: 'unavailable',
    message: expect.stringMatching(expected),
  });
});
