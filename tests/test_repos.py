"""One name for a repository, however an agent spells it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.sessions.repos import Checkouts, domain_of, normal_remote, normal_root


@pytest.mark.parametrize(
    "remote",
    [
        "https://github.com/acme/shop",
        "https://github.com/acme/shop.git",
        "https://github.com/acme/shop.git/",
        "https://GitHub.COM/acme/shop.git",
        "https://user@github.com/acme/shop.git",
        "https://user:ghp_token@github.com/acme/shop.git",
        "https://user:p@ss@github.com/acme/shop.git",
        "https://github.com:8443/acme/shop.git",
        "ssh://git@github.com/acme/shop.git",
        "ssh://git@github.com:2222/acme/shop.git",
        "ssh://git@github.com:/acme/shop.git",
        "git+ssh://git@github.com/acme/shop",
        "git://github.com/acme/shop.git",
        "HTTPS://github.com/acme/shop",
        "git@github.com:acme/shop.git",
        "github.com:acme/shop",
        "git@github.com:/acme/shop.git",
    ],
)
def test_every_spelling_of_a_remote_gives_one_name(remote: str) -> None:
    assert normal_remote(remote) == "github.com/acme/shop"


def test_groups_in_groups_are_kept() -> None:
    assert normal_remote("git@gitlab.example.org:a/b/c.git") == "gitlab.example.org/a/b/c"


def test_a_host_without_a_dot_is_one_where_a_user_stands_before_it() -> None:
    assert normal_remote("git@forge:team/app.git") == "forge/team/app"


@pytest.mark.parametrize(
    "remote", [None, "", "/srv/git/shop.git", "../shop", "file:///srv/git/shop.git", "C:/code/shop", "shop", "https://"]
)
def test_what_names_no_host_is_no_remote(remote: str | None) -> None:
    assert normal_remote(remote) is None


@given(user=st.text("ab:@%!", max_size=8), scheme=st.sampled_from(["https://", "ssh://"]))
def test_nothing_of_a_user_or_password_is_ever_kept(user: str, scheme: str) -> None:
    assert normal_remote(f"{scheme}{user}@github.com/acme/shop.git") == "github.com/acme/shop"


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/home/x/shop", "/home/x/shop"),
        ("/home/x/shop/", "/home/x/shop"),
        ("/home/x/shop/.claude/worktrees/fix-1", "/home/x/shop"),
        ("/home/x/shop/.claude/worktrees/fix-1/src", "/home/x/shop/src"),
        ("/home/x/shop/.git/worktrees/fix-1", "/home/x/shop"),
        ("/home/x/shop/.worktrees/2", "/home/x/shop"),
        ("/home/x/shop.worktrees/fix-1", "/home/x/shop"),
        ("/home/x/worktrees/shop", "/home/x/worktrees/shop"),
        (r"C:\code\shop", "C:/code/shop"),
        (r"c:\code\shop", "C:/code/shop"),
        ("c:/code/shop/", "C:/code/shop"),
        (r"C:\code\shop\.claude\worktrees\fix-1", "C:/code/shop"),
        (r"C:\code\shop\.worktrees\2\src", "C:/code/shop/src"),
        (r"\\server\share\shop", "//server/share/shop"),
        (r"/home/x/a\b", r"/home/x/a\b"),
        ("/", "/"),
        ("", None),
        (None, None),
    ],
)
def test_a_worktree_counts_as_the_checkout_it_belongs_to(path: str | None, root: str | None) -> None:
    assert normal_root(path) == root


@pytest.mark.parametrize(
    "folder",
    [
        "/home/x/shop/.worktrees/alex/ent-108-fix",
        "/home/x/shop/.worktrees/alex/ent-108-fix/src/deep",
        "/home/x/shop-worktrees/fix-1",
        "/home/x/shop.worktrees/alex/fix-1",
        "/home/x/.cursor/worktrees/shop/abc12/src",
    ],
)
def test_a_worktree_with_any_name_belongs_to_its_repository(folder: str) -> None:
    known = Checkouts([("/home/x/shop", "/home/x/shop", "git@github.com:acme/shop.git"), (folder, folder, None)])

    assert known.repo(folder, None, None) == known.repo(folder, folder, None) == "github.com/acme/shop"
    assert Checkouts([]).repo(folder, None, None) == "shop"


def test_a_sessions_own_remote_is_its_repository() -> None:
    assert Checkouts([]).repo("/home/x/shop", None, "git@github.com:acme/shop.git") == "github.com/acme/shop"


def test_a_remote_learned_from_another_session_of_the_checkout_names_this_one() -> None:
    checkouts = Checkouts([("/home/x/shop", "/home/x/shop", "git@github.com:acme/shop.git")])

    assert checkouts.repo("/home/x/shop/src/api", None, None) == "github.com/acme/shop"
    assert checkouts.repo("/home/x/shop/.claude/worktrees/fix", None, None) == "github.com/acme/shop"


def test_a_folder_of_a_checkout_has_its_repository_though_no_log_names_the_root() -> None:
    in_git = ["/home/x/shop", "/home/x/shop/packages/ui", "/home/x", "/home/x/other/app"]
    checkouts = Checkouts([(cwd, None, None) for cwd in [*in_git, "/home/x/shop/notes"]], in_git)

    assert (
        checkouts.repo("/home/x/shop/packages/ui", None, None) == checkouts.repo("/home/x/shop", None, None) == "shop"
    )
    assert checkouts.repo("/home/x/other/app", None, None) == "app"  # a home in git holds settings
    assert checkouts.repo("/home/x/shop/notes", None, None) == "notes"  # no session there was on a branch


def test_a_folder_whose_name_only_begins_like_a_checkout_is_not_in_it() -> None:
    checkouts = Checkouts([("/home/x/shop", "/home/x/shop", "git@github.com:acme/shop.git")])

    assert checkouts.repo("/home/x/shop-old", None, None) == "shop-old"


def test_the_nearest_checkout_above_counts() -> None:
    outer = ("/home/x/all", "/home/x/all", "git@github.com:acme/all.git")
    inner = ("/home/x/all/sub", "/home/x/all/sub", "git@github.com:acme/sub.git")

    assert Checkouts([outer, inner]).repo("/home/x/all/sub/src", None, None) == "github.com/acme/sub"


def test_a_checkout_without_a_remote_below_one_with_a_remote_is_its_own_repository() -> None:
    outer = ("/home/x", "/home/x", "git@github.com:acme/dotfiles.git")
    inner = ("/home/x/shop", "/home/x/shop", None)

    assert Checkouts([outer, inner]).repo("/home/x/shop/src", None, None) == "/home/x/shop"


def test_without_a_remote_the_git_roots_path_is_the_repository() -> None:
    checkouts = Checkouts([("/home/x/shop/src", "/home/x/shop", None)])

    assert checkouts.repo("/home/x/shop/src", None, None) == "/home/x/shop"


def test_without_any_checkout_the_last_part_of_the_folder_is_the_repository() -> None:
    assert Checkouts([]).repo("/home/x/notes/", None, None) == "notes"


def test_without_a_folder_there_is_no_repository() -> None:
    assert Checkouts([]).repo(None, None, None) is None


def test_a_checkout_on_windows_is_one_however_its_path_is_written() -> None:
    checkouts = Checkouts([(r"C:\code\shop", r"C:\code\shop", "git@github.com:acme/shop.git")])

    assert checkouts.repo("c:/code/shop/src", None, None) == "github.com/acme/shop"
    assert checkouts.repo(r"c:\code\shop\.worktrees\2", None, None) == "github.com/acme/shop"
    assert checkouts.repo(r"c:\Code\SHOP\src", None, None) == "github.com/acme/shop"


def test_a_repository_on_windows_has_one_name_whatever_its_letters() -> None:
    known = [(path, path, None) for path in (r"C:\Users\kim\Shop", r"c:\users\kim\shop")]

    assert {Checkouts(known).repo(path, path, None) for path, _, _ in known} == {"C:/Users/kim/Shop"}


def test_the_name_of_a_folder_on_windows_is_its_last_part() -> None:
    assert Checkouts([]).repo(r"C:\Users\kim\notes", None, None) == "notes"


def test_the_order_of_sessions_does_not_decide_between_two_remotes_of_a_checkout() -> None:
    known = [("/s", "/s", "git@github.com:a/shop.git"), ("/s", "/s", "git@github.com:b/shop.git")]

    assert Checkouts(known).repo("/s", None, None) == Checkouts(known[::-1]).repo("/s", None, None)


@pytest.mark.parametrize(
    ("repo", "domain"),
    [
        ("github.com/acme/shop", "the shop"),
        ("github.com/other/shop", "any shop"),
        ("github.com/acme/workshop", None),
        ("shop", "any shop"),
        (None, None),
    ],
)
def test_the_longest_configured_ending_of_whole_parts_names_the_domain(repo: str | None, domain: str | None) -> None:
    assert domain_of(repo, {"shop": "any shop", "acme/shop": "the shop"}) == domain
