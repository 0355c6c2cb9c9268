package check

import (
	"errors"
	"path"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
)

func checker(t testing.TB, s Settings) *Checker {
	t.Helper()
	c, err := New(s, Options{Cwd: "/project", Home: "/home/u"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Everyday lines pass a denylist (SDK-L, rule 8): a checker that refuses everything
// is of no use.
func TestEverydayCommandsPass(t *testing.T) {
	c := checker(t, Settings{DeniedCommands: []string{"rm", "sudo", "curl"}})
	for _, cmd := range []string{
		`go build ./... && go test -race -run 'TestX|TestY' ./pkg/... 2>&1 | tail -20`,
		`git add -A && git commit -m "fix: don't rm the cache (sudo not needed)"`,
		`git switch -c feature && git push -u origin feature`,
		`git log --oneline -n 5 | cat`, `git diff HEAD~1 -- '*.go' | head -100`, `git -C sub status --short`,
		`npm ci && npm run build -- --mode production`, `make -j4 test VERBOSE=1`, `cargo test --workspace`,
		`find . -name '*.go' -not -path './vendor/*' | xargs grep -n "x y"`, `find . -type f -exec wc -l {} +`,
		`for f in *.txt; do echo "$f"; wc -l "$f"; done`, `while read -r line; do echo "$line"; done < input.txt`,
		`if [ -f go.mod ]; then echo module; else echo none; fi`, `[[ -n "$CI" && $x == y* ]] && echo yes`,
		`i=0; while [ $i -lt 10 ]; do i=$((i + 1)); done`, `sed -n '10,20p' main.go`, `sed -i 's/foo/bar/g' a.txt`, `sed -e 's|a|b|' -e '/x/d' f`,
		`awk '{print $1}' file | sort -u`, `awk -F: '$3 > 100 {n++} END {print n}' /etc/passwd`, `tar -xzf a.tgz -C out`, `tar czf x.tgz --exclude=.git .`,
		`cat > main.go <<'EOF'` + "\npackage main // rm -rf /\nEOF", `python3 script.py --flag value`, `python3 -m pytest -q`, `node build.js`, `bash ./scripts/test.sh`,
		`timeout 30s go test ./...`, `env GOOS=linux go build`, `FOO=bar BAZ="x y" ./run.sh`, `(cd sub && make)`, `mkdir -p out/{a,b} && cp -r src out/`,
		`echo "$(git rev-parse HEAD)" > VERSION`, `diff <(sort a) <(sort b)`, `ls -la "$HOME"`, `printf '%s\n' "${arr[@]}"`, `test -d x || mkdir x`,
		`export FOO=1; echo $FOO`, `set -euo pipefail; ls`, `trap 'echo done' EXIT; ls`, `type git; command -v go; which ls`, `rg -n 'rm -rf' .`, `jq -r '.a[0]' f.json`,
		`x=5; y=$((x * 2)); echo $y`, `case "$1" in start) echo s;; *) echo o;; esac`, `nohup ./server > log 2>&1 &`, `grep -E 'a|b' <<< "$text"`, `rsync -av src/ dst/`, `docker ps`, `# just a comment`, ``,
		`perl script.pl`, `time make`, `pip install -r requirements.txt`, `bash -lc 'go version'`, `sh -c 'echo hi'`, `sort -t, -k2 data.csv`, `curl_wrapper x`, `./server & pid=$!; wait $pid`, `read -r a b`, `local_fn() { echo hi; }; local_fn`,
	} {
		if v := c.Command(cmd); !v.Allowed {
			t.Errorf("%q is refused: %+v", cmd, v)
		}
	}
}

// What hides a denied word is refused (SDK-L, rules 1 to 5), beyond the corpus.
func TestHiddenCommandsAreRefused(t *testing.T) {
	c := checker(t, Settings{DeniedCommands: []string{"rm"}})
	for _, cmd := range []string{
		`sh -c '((rm x))'`, `dash -c '( (rm x) )'`, "echo a \\\r\n rm x", "echo \x00 rm", `zsh -c '=rm x'`, `fish -c 'echo (rm x)'`,
		`busybox rm x`, `busybox sh -c 'rm x'`, `toybox rm`, `env -i rm x`, `env -S 'rm x'`, `env A=1 B=2 rm x`, `env -- A=1 rm`, `nice rm`, `nice -5 rm`, `nice -n5 rm`,
		`timeout -k 1 5 rm x`, `timeout --signal=KILL 5 rm x`, `xargs -I{} rm {}`, `xargs -0n1 rm`, `xargs -a f rm`, `xargs -J % rm`, `stdbuf -oL rm`, `setsid -w rm`, `ionice -c2 -n7 rm`,
		`sudo -u root rm x`, `sudo -i rm`, `sudo A=1 rm x`, `command -p rm`, `exec -a ls rm`, `builtin command rm`, `time -p rm`, `/usr/bin/time -v rm`, `chroot / rm`, `flock l rm`, `watch rm`, `ssh host rm`, `script -c rm`, `strace rm`, `parallel rm ::: x`,
		`find . -execdir rm {} \;`, `find . -ok rm {} \;`, `find . -exec sh -c 'rm x' \;`, `find . -exec env rm {} +`, `find . -exec`,
		`bash -ec 'rm x'`, `bash -o pipefail -c 'rm x'`, `bash --rcfile x`, `bash -s <<< 'rm'`, `bash < <(echo rm)`, `bash /dev/stdin`, `source <(echo rm)`, `. /dev/fd/3`, `bash -c "$X"`, `bash -c 'eval "$1"' x 'rm y'`, `echo rm | bash -x`, `cat f | sh`,
		`eval "$X"`, `eval rm x`, `eval 'bash -c "rm x"'`, `trap 'rm x' EXIT`, `trap -- 'rm x' 0`, `alias ls=rm`, `hash -p /bin/rm ls`, `enable -f x.so rm2`, `ls() { :; }; find() { rm x; }; find`, `PATH=/tmp:$PATH ls`, `export PATH=/x`, `LD_PRELOAD=x ls`, `declare -x BASH_ENV=f`, `BASH_ENV=x bash -c ls`,
		`GIT_PAGER=rm git log`, `git -c core.pager='rm x' log`, `git -c alias.x='!rm' x`, `git submodule foreach 'rm x'`, `git rebase -x 'rm y' main`, `git bisect run rm`, `git grep -O'rm' x`, `git clone -u 'rm x' a`, `git config core.pager rm`, `git difftool --extcmd=rm`, `git fetch --upload-pack='rm x' o`,
		`tar -cf x --checkpoint=1 --checkpoint-action=exec=rm .`, `tar xf a -I 'rm x'`, `tar xf a --to-command=rm`, `rsync -e 'rm x' a b:`, `sort --compress-program=rm`, `man -P rm ls`, `awk 'BEGIN{system("rm x")}'`, `awk 'BEGIN{"rm x" | getline}'`, `sed '1e rm x'`, `sed 's/a/rm x/e' f`, `sed -n '$e rm'`, `fd -x rm`, `go test -exec rm ./...`, `make --eval='x:;rm y'`,
		`perl -ne 'system "rm"'`, `perl -e 1`, `python3 -c 1`, `python3 -`, `python3 <<< 'x'`, `echo x | python3`, `ruby -e 1`, `node -e 1`, `node --eval 1`, `php -r 1`, `vim -c '!rm'`, `sqlite3 x '.shell rm'`,
		`mapfile -C rm a`, `compgen -C rm`, `complete -C rm x`, `fc -s rm`, `jobs -x rm`, `coproc rm`, `coproc X { rm; }`, `select x in a; do rm; done`, `((x[$(rm)]))`, `echo ${a[$(rm)]}`, `echo ${a:$(rm):1}`, `y='a[$(rm)]'; ((y))`, `y='a[$(rm)]'; z=${b[y]}`, `export y='a[$(rm)]'; bash -c '((y))'`, `env y='a[$(rm)]' bash -c '((y))'`, `eval "y='a[\$(rm)]'"; ((y))`, `x=y; echo ${!x}`, `x='$(rm)'; echo ${x@P}`, `printf -v 'a[$(rm)]' x`, `read 'a[$(rm)]' <<< 1`, `declare -i x=y`, `declare -n x=y`, `export "$X"`, `test -v 'a[$(rm)]'`, `unset 'a[$(rm)]'`,
		`$'\162m' x`, `r$'m' x`, `"$(printf rm)" x`, `{rm,x}`, `/bin/r*`, `r[m] x`, `~x/rm`, `if rm; then :; fi`, `! rm`, `time -- rm`,
	} {
		if v := c.Command(cmd); v.Allowed {
			t.Errorf("%q is let pass", cmd)
		}
	}
}

// Path rules reach the operands, wherever the line goes (SDK-L10, SDK-L11).
func TestOperands(t *testing.T) {
	deny := checker(t, Settings{DeniedPaths: []string{"/etc", "/project/secret"}})
	for _, c := range []struct {
		check *Checker
		cmd   string
		allow bool
	}{
		{deny, `cat secret/key`, false},
		{deny, `cd secret && cat key`, false},
		{deny, `cd /project; cat secret/key`, false},
		{deny, `cat s*/key`, false},
		{deny, `cat *`, false},
		{deny, `cat sec*`, false},
		{deny, `cat ./*.go`, true},
		{deny, `cat {secret,x}/key`, false},
		{deny, `cat {a,b}.txt`, true},
		{deny, `tar -C/etc -cf x .`, false},
		{deny, `curl -d @/etc/passwd x`, false},
		{deny, `curl file:///etc/passwd`, false},
		{deny, `curl https://example.com/etc/passwd`, true},
		{deny, `docker run -v /etc:/x y`, false},
		{deny, `cat "$X"`, false},
		{deny, `cat $PWD/secret/k`, false},
		{deny, `cat "$PWD/a"`, true},
		{deny, `pushd /tmp; cat x`, false},
		{deny, `cd "$D"; cat x`, false},
		{deny, `cd -; cat x`, false},
		{deny, `(cd /tmp); cat a`, true},
		{deny, `cd /tmp | cat a`, true},
		{deny, `for i in 1; do cd ..; cat etc/x; done`, false},
		{deny, `f() { cd /; }; f; cat etc/passwd`, false},
		{deny, `env -C /etc cat passwd`, false},
		{deny, `find /etc -name x`, false},
		{deny, `find . -exec cat {} +`, false},
		{deny, `ls | xargs cat`, false},
		{deny, `/etc/x`, false},
		{deny, `> /etc/x`, false},
		{deny, `cat 0</etc/x`, false},
		{deny, `exec 3<>/etc/x`, false},
		{deny, `cat <<< /etc/x`, true},
		{deny, `echo "a /etc b"`, true},
		{deny, `cp a /etcetera`, true},
		{deny, `echo $((1+1))`, true},
		{deny, `sh -c 'cat /etc/x'`, false},
		{deny, `python3 -c 'open("/etc/x")'`, false},
		{deny, `cat -- /etc/x`, false},
		{deny, `cat ~root/x`, false},
		{deny, `ls **/x`, false},
	} {
		if v := c.check.Command(c.cmd); v.Allowed != c.allow {
			t.Errorf("%q: %+v, want allow=%v", c.cmd, v, c.allow)
		}
	}
}

// Allow lists reach them too, reading and writing apart (SDK-L11, rule 7).
func TestOperandsWithin(t *testing.T) {
	within := checker(t, Settings{AllowedReadPaths: []string{"/project"}, AllowedWritePaths: []string{"/project/out"}})
	for _, c := range []struct {
		check *Checker
		cmd   string
		allow bool
	}{
		{within, `cat x > out/y`, true},
		{within, `cat x > y`, false},
		{within, `cp x out/y`, true},
		{within, `cp x y`, false},
		{within, `cp -t out x`, true},
		{within, `cp -t src x`, false},
		{within, `cp --target-directory=src x`, false},
		{within, `mv out/a out/b`, true},
		{within, `mv src/a out/b`, false},
		{within, `dd if=a of=out/b`, true},
		{within, `dd if=a of=b`, false},
		{within, `dd if=/x of=out/b`, false},
		{within, `sed -i s/a/b/ src/x`, false},
		{within, `sed -n p src/x`, true},
		{within, `mkdir new`, false},
		{within, `rm out/x`, true},
		{within, `rm x`, false},
		{within, `cat /project/*.go`, true},
		{within, `cat /*/x`, false},
		{within, `cat ../x*`, false},
		{within, `chmod 644 out/x`, true},
		{within, `chmod 644 x`, false},
		{within, `cd sub && cat ../a`, true},
		{within, `cd sub && cat ../../a`, false},
		{within, `ls > /dev/null 2>&1`, true},
		{within, `cat ~/x`, false},
		{within, `diff <(ls) <(ls)`, true},
		{within, `tee out/log`, true},
		{within, `tee log`, false},
	} {
		if v := c.check.Command(c.cmd); v.Allowed != c.allow {
			t.Errorf("%q: %+v, want allow=%v", c.cmd, v, c.allow)
		}
	}
}

// linkFS is a file system of links only.
type linkFS map[string]string

func (f linkFS) Readlink(name string) (string, error) {
	if to, ok := f[name]; ok {
		return to, nil
	}
	return "", syscall.EINVAL
}

func (f linkFS) ReadDir(name string) ([]Entry, error) {
	var out []Entry
	for at := range f {
		if path.Dir(at) == path.Clean(name) {
			out = append(out, Entry{Name: path.Base(at), Link: true})
		}
	}
	return out, nil
}

// An allowed name in the form of a path has to be the file that the name means
// (SDK-L14, rule 6), and a link does not hide a denied one.
func TestPathFormCommands(t *testing.T) {
	fs := linkFS{"/project/ls": "/usr/bin/rm", "/bin": "usr/bin"}
	o := Options{Cwd: "/project", FS: fs, SearchPath: []string{"/usr/bin"}}
	for _, c := range []struct {
		s     Settings
		cmd   string
		allow bool
	}{
		{Settings{DeniedCommands: []string{"rm"}}, "/project/ls x", false},
		{Settings{DeniedCommands: []string{"rm"}}, "./ls x", false},
		{Settings{DeniedCommands: []string{"rm"}}, "/bin/ls x", true},
		{Settings{DeniedCommands: []string{"/opt/rm"}}, "rm x", false},
		{Settings{AllowedCommands: []string{"git"}}, "/usr/bin/git x", true},
		{Settings{AllowedCommands: []string{"git"}}, "/bin/git x", true},
		{Settings{AllowedCommands: []string{"git"}}, "/tmp/git x", false},
		{Settings{AllowedCommands: []string{"git"}}, "./git x", false},
		{Settings{AllowedCommands: []string{"/opt/git"}}, "/opt/git x", true},
		{Settings{AllowedCommands: []string{"/opt/git"}}, "git x", false},
		{Settings{AllowedCommands: []string{"/usr/bin/git"}}, "git x", true},
		{Settings{AllowedCommands: []string{"echo"}}, "f() { echo; }; f", false},
		{Settings{AllowedCommands: []string{"bash", "echo"}}, "bash -c 'echo hi'", true},
		{Settings{AllowedCommands: []string{"echo"}}, "[ x ] && echo", false},
	} {
		k, err := New(c.s, o)
		if err != nil {
			t.Fatal(err)
		}
		if v := k.Command(c.cmd); v.Allowed != c.allow {
			t.Errorf("%+v %q: %+v, want allow=%v", c.s, c.cmd, v, c.allow)
		}
	}
}

func TestNormalize(t *testing.T) {
	fs := linkFS{"/a/link": "../b", "/b/up": "..", "/loop": "loop", "/abs": "/x/y", "/a/dangling": "/gone/away"}
	for _, c := range []struct{ in, clean, physical string }{
		{"/", "/", "/"},
		{"/a/../b", "/b", "/b"},
		{"/a/link/c", "/a/link/c", "/b/c"},
		{"/a/link/..", "/a", "/"},
		{"/a/link/up/z", "/a/link/up/z", "/z"},
		{"/abs/z/", "/abs/z", "/x/y/z"},
		{"//a//./c/", "/a/c", "/a/c"},
		{"/../..", "/", "/"},
		{"/a/dangling", "/a/dangling", "/gone/away"},
		{"/Ä/É", "/Ä/É", "/Ä/É"},
	} {
		r, err := Normalize(fs, c.in)
		if err != nil || r.Clean != c.clean || r.Physical != c.physical {
			t.Errorf("%q: %+v, %v, want %q and %q", c.in, r, err, c.clean, c.physical)
		}
		again, err := Normalize(fs, r.Physical)
		if err != nil || again.Physical != r.Physical {
			t.Errorf("%q is not at rest: %+v, %v (SDK-K13)", r.Physical, again, err)
		}
	}
	if _, err := Normalize(fs, "/loop/x"); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a loop of links: %v", err)
	}
}

// Which hosts a list of domains means (SDK-B11, SDK-B12).
func TestDomains(t *testing.T) {
	if v := checker(t, Settings{}).Domain("anything.example"); !v.Allowed {
		t.Errorf("no network rules: %+v", v)
	}
	c := checker(t, Settings{Network: &Network{AllowedDomains: []string{"Example.com", "*.golang.org", "10.0.0.1"}}})
	for host, want := range map[string]bool{
		"example.com": true, "EXAMPLE.com.": true, "www.example.com": false, "example.com.evil.org": false, "notexample.com": false, "proxy.golang.org": true, "a.b.golang.org": true,
		"golang.org": false, "xgolang.org": false, "10.0.0.1": true, "::ffff:10.0.0.1": true, "10.0.0.2": false, "[::1]": false, "127.0.0.1": false, "": false, ".": false,
	} {
		if v := c.Domain(host); v.Allowed != want {
			t.Errorf("%q: %+v, want %v", host, v, want)
		}
	}
	if v := checker(t, Settings{Network: &Network{}}).Domain("example.com"); v.Allowed {
		t.Error("an empty list grants something")
	}
}

// Every mistake is found when the settings are read, and named (SDK-B20).
func TestSettingsThatMakeNoSense(t *testing.T) {
	for in, names := range map[string]string{
		`{"allowedReadPath": []}`: "allowedReadPath", `{"deniedPaths": [""]}`: "deniedPaths[0]", `{"deniedPaths": ["/a", "etc"]}`: "deniedPaths[1]", `{"deniedWritePaths": ["etc"]}`: "deniedWritePaths[0]",
		`{"allowedWritePaths": ["./x"]}`: "allowedWritePaths[0]", `{"allowedReadPaths": ["/a\u0000"]}`: "allowedReadPaths[0]", `{"deniedCommands": ["rm -rf"]}`: "deniedCommands[0]",
		`{"allowedCommands": ["git", ""]}`: "allowedCommands[1]", `{"deniedCommands": ["$(x)"]}`: "deniedCommands[0]", `{"allowedCommands": ["/bin/"]}`: "allowedCommands[0]",
		`{"ignoreViolations": {"disk": []}}`: "disk", `{"ignoreViolations": {"file": ["["]}}`: "ignoreViolations.file[0]", `{"network": {"allowedDomains": ["http://x"]}}`: "network.allowedDomains[0]",
		`{"network": {"allowedDomains": ["*.*.x"]}}`: "allowedDomains[0]", `{"network": {"httpProxyPort": 0}}`: "httpProxyPort", `{"network": {"x": 1}}`: "x", `[]`: "array", `{} {}`: "follows", `{"deniedPaths": "x"}`: "deniedPaths", `{"deniedPaths": ["~x/y"]}`: "deniedPaths[0]", ``: "empty",
	} {
		_, err := ParseSettings([]byte(in))
		if !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v, want it to name %q", in, err, names)
		}
	}
	if _, err := New(Settings{DeniedPaths: []string{"~/.ssh"}}, Options{}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("a rule below a home that nobody knows: %v", err)
	}
	if _, err := New(Settings{}, Options{Cwd: "x"}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("a relative working directory: %v", err)
	}
}

// SDK-B18: the fields that are set, as a text.
func TestSettingsSayWhatIsSet(t *testing.T) {
	s, err := ParseSettings([]byte(`{"allowedCommands": [], "deniedPaths": ["/etc"], "autoAllowBashIfSandboxed": true, "ripgrep": {"command": "rg"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.String(); got != `deniedPaths: ["/etc"], allowedCommands: [], autoAllowBashIfSandboxed: true, ripgrep: {"command":"rg"}` {
		t.Errorf("%s", got)
	}
	if got := (Settings{}).String(); got != "no restrictions" {
		t.Errorf("%s", got)
	}
	if s.Equal(Settings{DeniedPaths: []string{"/etc"}, AutoAllowBashIfSandboxed: true, Ripgrep: &Ripgrep{Command: "rg"}}) {
		t.Error("an empty allow list equals none (SDK-B5)")
	}
	if l := (Settings{AllowedReadPaths: []string{"/a"}}).Lint(); len(l) != 1 {
		t.Errorf("%q (SDK-B2)", l)
	}
}

// Narrow never grants more than the parent does (SDK-B9).
func TestNarrow(t *testing.T) {
	paths := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"/", "/a", "/a/b", "/a/b/c", "/d", "/ab"}), 0, 3, rapid.ID)
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"git", "ls", "rm", "cat"}), 0, 3, rapid.ID)
	domains := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"*.x.org", "a.x.org", "*.b.x.org", "x.org", "y.org"}), 0, 3, rapid.ID)
	settings := rapid.Custom(func(t *rapid.T) Settings {
		s := Settings{
			AllowedReadPaths: paths.Draw(t, "read"), AllowedWritePaths: paths.Draw(t, "write"), DeniedPaths: paths.Draw(t, "deny"), DeniedWritePaths: paths.Draw(t, "read only"), DeniedCommands: names.Draw(t, "denied"),
			AllowNestedSandbox: rapid.Bool().Draw(t, "nested"), AllowUnsandboxedCommands: rapid.Bool().Draw(t, "unsandboxed"), AutoAllowBashIfSandboxed: rapid.Bool().Draw(t, "auto"),
		}
		if rapid.Bool().Draw(t, "allowlist") {
			s.AllowedCommands = append([]string{}, names.Draw(t, "allowed")...)
		}
		if rapid.Bool().Draw(t, "network") {
			s.Network = &Network{AllowedDomains: domains.Draw(t, "domains"), AllowLocalBinding: rapid.Bool().Draw(t, "binding")}
		}
		return s
	})
	rapid.Check(t, func(t *rapid.T) {
		parent, child := settings.Draw(t, "parent"), settings.Draw(t, "child")
		got, err := parent.Narrow(child)
		if err != nil {
			return
		}
		both := func(ask func(*Checker) bool) {
			p, errP := New(parent, Options{})
			c, errC := New(child, Options{})
			n, errN := New(got, Options{})
			if err := errors.Join(errP, errC, errN); err != nil {
				t.Fatal(err)
			}
			if ask(n) != (ask(p) && ask(c)) {
				t.Fatalf("parent %v, child %v, narrowed %s: %v, %v, %v", parent, child, got, ask(p), ask(c), ask(n))
			}
		}
		for _, p := range []string{"/", "/a/x", "/a/b/x", "/a/b/c/x", "/d/x", "/ab", "/e"} {
			both(func(c *Checker) bool { return c.Path(p, Read).Allowed })
			both(func(c *Checker) bool { return c.Path(p, Write).Allowed })
		}
		for _, name := range []string{"git", "ls", "rm", "cat", "make"} {
			// A parent's deny list holds even where its allow list made it idle.
			if p, _ := New(Settings{AllowedCommands: parent.AllowedCommands, DeniedCommands: parent.DeniedCommands}, Options{}); !p.Command(name).Allowed {
				if n, _ := New(got, Options{}); n.Command(name).Allowed {
					t.Fatalf("%s: parent %v, child %v, narrowed %v", name, parent, child, got)
				}
			}
		}
		for _, h := range []string{"x.org", "a.x.org", "b.x.org", "c.b.x.org", "y.org", "z.org"} {
			both(func(c *Checker) bool { return c.Domain(h).Allowed })
		}
		if got.AllowNestedSandbox && !parent.AllowNestedSandbox || got.AllowUnsandboxedCommands && !parent.AllowUnsandboxedCommands || got.AutoAllowBashIfSandboxed && !parent.AutoAllowBashIfSandboxed {
			t.Fatalf("a child has more than its parent: %s", got)
		}
	})
	weaker := Settings{EnableWeakerNestedSandbox: true, AllowedCommands: []string{}}
	if got, err := weaker.Narrow(Settings{}); err != nil || !got.Equal(Settings{}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := (Settings{AllowedReadPaths: []string{"/a"}}).Narrow(Settings{AllowedReadPaths: []string{"/b"}}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("two lists with nothing in common: %v", err)
	}
}

func TestAnalyze(t *testing.T) {
	an, err := Analyze(`A=1 git commit -m "two words" && timeout 5 ls $X > out`, "/project", "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range an.Commands {
		got = append(got, c.Name+" "+strings.Join(c.Args, "|"))
	}
	if want := "git commit|-m|two words;timeout 5|ls|$…;ls $…"; strings.Join(got, ";") != want {
		t.Errorf("%q, want %q", strings.Join(got, ";"), want)
	}
	if len(an.Redirects) != 1 || an.Redirects[0].Path != "out" || an.Commands[0].Computed || !an.Commands[2].Computed || an.Commands[1].Pos != 33 {
		t.Errorf("%+v", an)
	}
}

// TestArraysAreRefused: with a reason that a person understands, in every form.
func TestArraysAreRefused(t *testing.T) {
	c := checker(t, Settings{DeniedPaths: []string{"/etc"}})
	for _, cmd := range []string{"a=(x y)", "a+=(x)", "declare -a a=(x)", "local a=(x)", "a=() ls", "a=([1]=x); ls"} {
		if v := c.Command(cmd); v.Allowed || strings.Contains(v.Reason, "runtime error") {
			t.Errorf("%q: %+v", cmd, v)
		}
	}
}

func FuzzCommand(f *testing.F) {
	for _, v := range append(vectors(f), vectorsOf(f, "sandbox-checker-cases-2.jsonl")...) {
		f.Add(v.Input)
	}
	for _, s := range append(append([]string{}, fragments...), atoms...) {
		f.Add(s)
	}
	c := checker(f, Settings{DeniedCommands: []string{"rm"}, DeniedPaths: []string{"/etc"}, AllowedReadPaths: []string{"/project"}})
	f.Fuzz(func(t *testing.T, cmd string) {
		v := c.Command(cmd)
		if !v.Allowed && (v.Code == "" || v.Reason == "") {
			t.Errorf("%q: %+v", cmd, v)
		}
		if v.Pos < 0 || v.Pos > len(cmd) || strings.Contains(v.Reason, "runtime error") {
			t.Errorf("%q: %+v", cmd, v)
		}
	})
}

func FuzzNormalize(f *testing.F) {
	f.Add("/a/link/../x", "../b")
	f.Add("/../..//a/", "/")
	f.Fuzz(func(t *testing.T, p, target string) {
		fs := linkFS{"/a/link": target, "/b/link": "/a/link/.."}
		r, err := Normalize(fs, "/"+p)
		if err != nil {
			return
		}
		if !strings.HasPrefix(r.Physical, "/") || strings.Contains(r.Physical+"/", "/../") || strings.Contains(r.Physical, "//") {
			t.Errorf("%q: %+v", p, r)
		}
		if again, err := Normalize(fs, r.Physical); err != nil || again.Physical != r.Physical {
			t.Errorf("%q: %q is not at rest: %q, %v", p, r.Physical, again.Physical, err)
		}
	})
}

func FuzzSettings(f *testing.F) {
	f.Add([]byte(`{"allowedCommands": ["git"], "network": {"allowedDomains": ["*.x.org"]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseSettings(b)
		if err != nil {
			if !holdfast.IsKind(err, holdfast.KindInvalid) {
				t.Errorf("%v", err)
			}
			return
		}
		if _, err := New(s, Options{Home: "/home/u"}); err != nil {
			t.Errorf("settings that were read and are none: %v", err)
		}
	})
}

func BenchmarkCommand(b *testing.B) {
	c := checker(b, Settings{DeniedCommands: []string{"rm", "sudo"}, DeniedPaths: []string{"/etc", "/home/u/.ssh"}, AllowedReadPaths: []string{"/project"}})
	const cmd = `cd sub && go test -run 'TestX' ./pkg/... 2>&1 | tail -20 > out.txt`
	if v := c.Command(cmd); !v.Allowed {
		b.Fatalf("%+v", v)
	}
	b.ReportAllocs()
	for b.Loop() {
		c.Command(cmd)
	}
}
