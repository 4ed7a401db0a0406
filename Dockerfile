# The service with its build, run by an ordinary user.
#
# With SANDBOX_DRIVER=docker it needs a way to the engine and nothing else (docker-compose.yml).
#
# Sandboxes of the local driver are made of namespaces, which a container's default profile forbids.
# Run it with
#   --security-opt seccomp=unconfined --security-opt systempaths=unconfined
# and keep /data on a volume: overlay mounts cannot lie on the container's
# own overlay. Without these the service starts and POST /sessions answers 502 with the cause.

FROM node:24-bookworm-slim AS build
# For native/confine.c.
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --no-audit --no-fund
COPY . .
RUN npm run build

FROM node:24-bookworm-slim AS packages
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --no-audit --no-fund

FROM node:24-bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends bubblewrap ca-certificates git \
 && rm -rf /var/lib/apt/lists/* \
 && install -d -o node -g node -m 0755 /data \
 && printf '#!/bin/sh\nexec node /app/dist/src/cli/main.js "$@"\n' >/usr/local/bin/agent-sessions \
 && chmod 0755 /usr/local/bin/agent-sessions
WORKDIR /app
COPY --from=packages /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY package.json prices.json ./
ENV NODE_ENV=production HOST=0.0.0.0 PORT=8080 DATA_DIR=/data
USER node
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT}/healthz`).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
# The service handles its signals itself, and reaps nothing but its own children: run with --init.
CMD ["node", "--enable-source-maps", "dist/src/main.js"]
