from rankscope.lab.findings import docstring
from rankscope.lab.paper_figures import stage_figures


def test_each_figure_of_a_diagonal_network_says_what_it_shows() -> None:
    captions = {name: docstring(maker) for name, maker in stage_figures("teacher-1").items()}
    assert len(set(captions.values())) == len(captions)
    titles = {name: " ".join(of.partition("\n\n")[0].split()) for name, of in captions.items()}
    assert "K-Q" in titles["entries-kq"] and titles["entries-kq"].endswith("(fig. 7).")
    assert "V-O" in titles["entries-vo"] and titles["entries-vo"].endswith("(fig. 8).")
