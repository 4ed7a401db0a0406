/** The fields of Kubernetes' objects that are read. What an API server answers may lack any of them. */
export interface KubeMeta {
  name: string;
  uid?: string;
  resourceVersion?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  deletionTimestamp?: string;
}

export interface KubeVolumeClaim {
  metadata: KubeMeta;
  spec?: { storageClassName?: string };
  status?: { phase?: string };
}

export interface KubeContainerState {
  waiting?: { reason?: string; message?: string };
  running?: object;
  terminated?: { exitCode?: number; reason?: string; message?: string };
}

export interface KubeContainerStatus {
  name: string;
  state?: KubeContainerState;
}

export interface KubePod {
  metadata: KubeMeta;
  status?: {
    phase?: string;
    reason?: string;
    message?: string;
    conditions?: { type: string; status: string; reason?: string; message?: string }[];
    initContainerStatuses?: KubeContainerStatus[];
    containerStatuses?: KubeContainerStatus[];
  };
}

export interface KubeEvent {
  type?: string;
  reason?: string;
  message?: string;
  lastTimestamp?: string | null;
}

export interface KubeList<T> {
  metadata?: { continue?: string };
  items: T[];
}
