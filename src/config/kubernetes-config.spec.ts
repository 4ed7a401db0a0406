import { resolve } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { loadConfig } from './app-config.js';

describe('the configuration of Kubernetes', () => {
  const env = { SANDBOX_DRIVER: 'kubernetes', GATEWAY_URL: 'http://gateway.example:8081' };

  it('has defaults', () => {
    expect(loadConfig(env).sandbox.kubernetes).toEqual({
      kubeconfig: undefined,
      namespace: undefined,
      supervisorImage: 'agent-session-service:latest',
      pullSecrets: [],
      storageClass: undefined,
      idleSeconds: 600,
      gatewayPods: undefined,
    });
  });

  it('reads what is set', () => {
    const set = {
      ...env,
      KUBECONFIG: 'config',
      KUBERNETES_NAMESPACE: 'sandboxes',
      KUBERNETES_GATEWAY_PODS: 'agent-sessions/app.kubernetes.io/name=gateway,tier=egress',
      SANDBOX_SUPERVISOR_IMAGE: 'registry.example/service:1',
      SANDBOX_PULL_SECRETS: 'one, two',
      SANDBOX_STORAGE_CLASS: 'fast',
      SANDBOX_SUSPEND_AFTER: '90s',
    };
    expect(loadConfig(set).sandbox.kubernetes).toEqual({
      kubeconfig: resolve('config'),
      namespace: 'sandboxes',
      supervisorImage: 'registry.example/service:1',
      pullSecrets: ['one', 'two'],
      storageClass: 'fast',
      idleSeconds: 90,
      gatewayPods: {
        namespace: 'agent-sessions',
        labels: { 'app.kubernetes.io/name': 'gateway', tier: 'egress' },
      },
    });
  });

  it.each([
    [{ SANDBOX_DRIVER: 'kubernetes' }, 'GATEWAY_URL: must be set'],
    [{ ...env, KUBERNETES_NAMESPACE: 'Not A Name' }, 'KUBERNETES_NAMESPACE: must be'],
    [{ ...env, KUBERNETES_GATEWAY_PODS: 'app=gateway' }, 'KUBERNETES_GATEWAY_PODS: must be'],
    [{ ...env, SANDBOX_SUSPEND_AFTER: 'soon' }, 'SANDBOX_SUSPEND_AFTER: must be'],
  ])('refuses %j', (wrong, message) => {
    expect(() => loadConfig(wrong)).toThrow(message);
  });
});
