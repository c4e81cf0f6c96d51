# Builds the binary, then ships it alone on a small base, as a user without rights.
FROM rust:1-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends cmake pkg-config clang libclang-dev zlib1g-dev libssl-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY .cargo .cargo
COPY src src
COPY tests tests
RUN cargo build --profile dist --bin tidemill && cp target/dist/tidemill /tidemill

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates libssl3 zlib1g \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --create-home --home-dir /var/lib/tidemill tidemill
COPY --from=build /tidemill /usr/local/bin/tidemill
USER tidemill
WORKDIR /var/lib/tidemill
VOLUME /var/lib/tidemill
EXPOSE 5433 8433
# It listens to other machines, so that a start without users needs TIDEMILL_PASSWORD_FILE.
ENTRYPOINT ["tidemill"]
CMD ["serve", "--data", "/var/lib/tidemill/data", "--listen", "0.0.0.0:5433", "--http", "0.0.0.0:8433"]
