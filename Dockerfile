# One image for web, worker, beat and setup. Runs as a user without rights, on a read-only root.
ARG PYTHON_IMAGE=python:3.11-slim
FROM ${PYTHON_IMAGE} AS build
WORKDIR /build
# 1: with the package for Anthropic's interface.
ARG ANTHROPIC=
# 1: with what compares vectors, for the search by meaning.
ARG SEMANTIC=
# 1: with the packages for files in an S3 bucket.
ARG S3=
# 1: with traces for OpenTelemetry and error reports for Sentry.
ARG TELEMETRY=
# 1: with the packages for tools of MCP servers.
ARG TOOLS=
COPY constraints.txt constraints-anthropic.txt constraints-s3.txt constraints-semantic.txt constraints-telemetry.txt \
    constraints-tools.txt ./
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes -r constraints.txt ${ANTHROPIC:+-r constraints-anthropic.txt} \
        ${S3:+-r constraints-s3.txt} ${SEMANTIC:+-r constraints-semantic.txt} ${TELEMETRY:+-r constraints-telemetry.txt} \
        ${TOOLS:+-r constraints-tools.txt}
WORKDIR /app
COPY manage.py pyproject.toml ./
COPY project project
COPY replay replay
COPY speed speed
COPY contextpolicy contextpolicy
COPY chats chats
COPY templates templates
COPY static static
COPY locale locale
COPY docs docs
# In a checkout made with umask 077, only its owner can read the files.
RUN chmod -R a+rX .
# The root is read-only, so no process can write bytecode: without it, each start compiles the code again.
RUN python -m compileall -q --invalidation-mode unchecked-hash .

FROM ${PYTHON_IMAGE}
RUN useradd --uid 10001 --home-dir /data --no-create-home --no-log-init --shell /usr/sbin/nologin palimpsest \
    && install -d -m 0700 -o palimpsest -g palimpsest /data
COPY --from=build /venv /venv
COPY --from=build /app /app
WORKDIR /app
ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PALIMPSEST_DATA=/data
USER palimpsest
VOLUME /data
EXPOSE 8420
STOPSIGNAL SIGTERM
CMD ["python", "manage.py", "web", "--host", "0.0.0.0"]
