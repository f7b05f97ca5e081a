#!/bin/sh
# Install the tools of the zoo on Debian 12, as root: packages of Debian, and those of PyPI and npm under $ZOO_TOOLS.
# Not from here: cargo and rustc (rustup), terraform, node. Maven needs its plugins and JUnit in ~/.m2 (it runs offline).
set -eu
tools=${ZOO_TOOLS:-/opt/zoo}
apt-get update
apt-get install -y --no-install-recommends gcc clang libclang-rt-14-dev golang-go default-jdk-headless maven gradle \
  kotlin ghc ocaml-nox elixir erlang-base erlang-dev erlang-eunit php-cli php-xml php-mbstring phpunit ruby ruby-rspec \
  shellcheck perl make cmake ninja-build sqlite3 postgresql git
mkdir -p "$tools/npm"
python3 -m venv "$tools/py"
"$tools/py/bin/pip" install setuptools==65.5.0 wheel pytest pytest-timeout hypothesis mypy ruff pyright
cd "$tools/npm"
npm init -y
npm install typescript@5 eslint@9 jest@29 vitest@2 mocha@10
