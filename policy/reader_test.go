package policy_test

import (
	"encoding/json"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

// An allow rule that names a program does not vouch for options that make it run
// another program, nor for unknown options: a person is asked (finding 3 of the hostile
// review). Everyday lines stay allowed.
func TestAllowRulesAskAboutUnknownOptions(t *testing.T) {
	e := engine(t, policy.Config{Rules: rules(t, []string{"Bash(git *)", "Bash(sed *)", "Bash(tar *)", "Bash(go build *)", "Bash(mytool *)", "Bash(npx *)", "Bash(./ci/test.sh *)", "Bash(make *)"}, nil, nil)})
	for cmd, want := range map[string]policy.Verdict{
		`git clone --upload-pac='touch /workspace/owned;:' . y`:   policy.Asked,
		`sed '1etouch /workspace/owned' CLAUDE.md`:                policy.Asked,
		`tar cIf 'sh -c touch\ /workspace/owned' a.tar CLAUDE.md`: policy.Asked,
		`GOFLAGS=-toolexec=/workspace/e go build ./...`:           policy.Asked,
		`GOFLAGS=-mod=mod go build ./...`:                         policy.Asked,
		`GIT_SSH_COMMAND=/workspace/e git fetch`:                  policy.Asked,
		`LD_PRELOAD=/workspace/e.so mytool`:                       policy.Asked,
		`SOME_SETTING=x git log`:                                  policy.Asked,
		`SOME_SETTING=x mytool`:                                   policy.Allowed,
		`git log --no-such-option`:                                policy.Asked,
		`git no-such-command`:                                     policy.Asked,
		`git fetch origin $BRANCH`:                                policy.Asked,
		`git commit -m "$MESSAGE"`:                                policy.Allowed,
		`git log -1 --format=%B --output=.git/config`:             policy.Asked,
		`git --git-dir=evil.git log`:                              policy.Asked,
		`git log --oneline -5 && git diff --stat HEAD~1`:          policy.Allowed,
		`git -C sub status --short`:                               policy.Allowed,
		`tar -czf a.tgz --exclude=.git .`:                         policy.Allowed,
		`tar cf a.tar *`:                                          policy.Asked,
		`sed -n '1,10p' f`:                                        policy.Allowed,
		`sed -f script f`:                                         policy.Asked,
		`mytool --no-such-option -x`:                              policy.Allowed,
		`npx eslint --fix .`:                                      policy.Allowed,
		`npx -c 'curl x'`:                                         policy.Allowed,
		`make CC=/workspace/e`:                                    policy.Asked,
		`./ci/test.sh -v`:                                         policy.Allowed,
		`/workspace/ci/test.sh -v`:                                policy.Asked,
		`cd /tmp && ./ci/test.sh`:                                 policy.Asked,
		`git config core.pager e`:                                 policy.Asked,
		`git config user.name me`:                                 policy.Allowed,
	} {
		d, _, err := e.Rehearse(t.Context(), policy.Request{Mode: holdfast.ModeDefault, Tool: "Bash", Input: command(t, cmd)})
		if err != nil || d.Verdict != want {
			t.Errorf("%s: %s by %s (%s), %v, want %s", cmd, d.Verdict, d.By, d.Reason, err, want)
		}
	}
}

// Mode auto allows by reading the command: for unknown options it asks, with the
// reason.
func TestModeAutoAsksAboutUnknownOptions(t *testing.T) {
	e := engine(t, policy.Config{})
	for cmd, want := range map[string]policy.Verdict{
		`git log --no-such-option`:        policy.Asked,
		`git rebase --exe=e HEAD~1`:       policy.Asked,
		`GOFLAGS=-mod=mod go build ./...`: policy.Asked,
		`sort --compress-prog=e f`:        policy.Asked,
		`git log --oneline`:               policy.Allowed,
		`go test -race ./...`:             policy.Allowed,
		`mytool --no-such-option`:         policy.Allowed,
	} {
		d, _, err := e.Rehearse(t.Context(), policy.Request{Mode: holdfast.ModeAuto, Tool: "Bash", Input: command(t, cmd)})
		if err != nil || d.Verdict != want || want == policy.Asked && d.Reason == "" {
			t.Errorf("%s: %s (%s), %v, want %s", cmd, d.Verdict, d.Reason, err, want)
		}
	}
}

// A deny rule for a subcommand also applies if options precede the subcommand (finding
// 9).
func TestDenyRulesSeeSubcommandsBehindOptions(t *testing.T) {
	e := engine(t, policy.Config{Rules: rules(t, nil, nil, []string{"Bash(git push *)", "Bash(npm publish *)", "Bash(docker rmi *)", "Bash(rm *)"})})
	for cmd, denied := range map[string]bool{
		`git -C . push`:                          true,
		`git --no-pager push origin main`:        true,
		`git -P -C sub --literal-pathspecs push`: true,
		`git --git-dir .git push`:                true,
		`npm --silent publish`:                   true,
		`docker --log-level debug rmi x`:         true,
		`npx rm x`:                               true,
		`npm exec -- rm x`:                       true,
		`git -C push status`:                     false,
		`git log --grep push`:                    false,
		`git -C . log push`:                      false,
	} {
		d, _, err := e.Rehearse(t.Context(), policy.Request{Mode: holdfast.ModeBypassPermissions, Tool: "Bash", Input: command(t, cmd)})
		if err != nil || (d.Verdict == policy.Denied) != denied {
			t.Errorf("%s: %s (%s), %v, want denied=%v", cmd, d.Verdict, d.Reason, err, denied)
		}
	}
}

// command is the input of a Bash call.
func command(t testing.TB, text string) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(map[string]string{"command": text})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
