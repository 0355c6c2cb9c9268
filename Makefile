# Holdfast. `make demo` shows it, `make test` tries it, `make check` tries it harder. `make help` lists the rest.
# Every target is a script under scripts/, prints what it installs and how many
# seconds it took. Nothing is installed outside this folder, except a C compiler
# for the race detector (apt-get, only when it is missing and you are root).

.DEFAULT_GOAL := build
RUN := scripts/timed

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

boxd: ## build the program of the box, static, for this machine
	@$(RUN) boxd scripts/boxd

boxd-all: ## the same for amd64 and arm64
	@$(RUN) boxd-all scripts/boxd amd64 arm64

build: boxd ## build bin/holdfast
	@$(RUN) build scripts/build

release: boxd-all ## build archives, checksums and SBOMs for every system into dist/
	@$(RUN) release scripts/release

release-dry: ## the same twice from two places: the checksums must agree; tries the image by hand
	@$(RUN) release-dry scripts/release-dry

demo: build ## a session that survives, in one minute, offline
	@$(RUN) demo bin/holdfast demo

test: ## does it work here? (about 5 minutes)
	@$(RUN) test scripts/test

check: ## what a change must pass as well: long tests, race, coverage, kills, mutants, fuzzing
	@$(RUN) check scripts/check

test-long: build ## full counts of the kill loop, fuzzing and mutants, and the soak
	@$(RUN) test-long scripts/test-long

faults: build ## 300 kills, stops, full disks and power cuts under load (as root, about 10 minutes)
	@$(RUN) faults scripts/faults 300

bench: build ## measure the gates
	@$(RUN) bench bin/holdfast bench

lint: ## gofumpt, go vet, staticcheck
	@$(RUN) lint scripts/lint

race: boxd ## tests under the race detector
	@$(RUN) race scripts/race

cover: boxd ## coverage of engine, journal and boxd
	@$(RUN) cover scripts/cover

fuzz: ## every fuzz target for FUZZ_SECONDS (default 30)
	@$(RUN) fuzz scripts/fuzz

mutants: boxd ## break the code on purpose; each break must turn its test red
	@$(RUN) mutants scripts/mutants

escapes: boxd ## write docs/security/escapes.md from a run of the escape suite
	@$(RUN) escapes scripts/escapes

clean: ## remove what the other targets built here
	rm -rf bin dist .cache sandbox/boxd/dist/boxd_*

.PHONY: help boxd boxd-all build release release-dry demo test check test-long faults bench lint race cover fuzz mutants escapes clean
