"""Random absorbed latent attention: one latent vector and one rotary key for each token and all heads."""

import numpy as np

from support.paged_jobs import PagedJob


class LatentJob(PagedJob):
    """The same problem in four forms: `forms()` has the jobs with pages of both, with pages of whole rows, with
    contiguous vectors, and with Q, K and V."""

    def __init__(self, seed):
        super().__init__(seed)
        choose = self.choose
        self.R, self.Dr = choose.choice([4, 12, 32]), choose.choice([1, 4, 8])
        self.G, self.D, self.Dv = 1, self.R + self.Dr, self.R
        self.H = choose.choice([1, 2, 5, 16])
        self.scale = choose.choice([0.21, 0.4])
        self.options["scale"] = self.scale
        if choose.random() < 0.4:
            self.options["sinks"] = self.rng.standard_normal(self.H)
        self.form = choose.choice(["nhd", "nhd 4", "hnd"])
        self.K = self.pool(self.D)
        self.V = self.K[..., :self.R]

    def pools(self):
        """KV_pages, which jobs() gives; value_width tells which columns are the values."""
        rows = {"nhd": self.K[:, :, 0], "nhd 4": self.K, "hnd": self.K.transpose(0, 2, 1, 3)}[self.form]
        layout = {"page_layout": "hnd"} if self.form == "hnd" else {}
        return {"KV_pages": rows, "value_width": self.R} | layout

    def forms(self):
        rows, plain = self.jobs()
        without = {key: value for key, value in rows.items() if key not in ("Q", "KV_pages", "value_width")}
        queries = {"Q_nope": rows["Q"][..., :self.R], "Q_pe": rows["Q"][..., self.R:]}
        pages = without | queries | {"CKV_pages": rows["KV_pages"][..., :self.R], "K_pe_pages": rows["KV_pages"][..., self.R:]}
        K = plain["K"][..., 0, :] if plain.get("layout") else plain["K"][:, 0]
        latent = {key: value for key, value in plain.items() if key not in "QKV"} | queries
        return [pages, rows, without | queries | {"KV_pages": rows["KV_pages"]},
                latent | {"CKV": K[..., :self.R], "K_pe": K[..., self.R:]}, plain]

    def context_of(self, q, k, v):
        scores = self.scale * np.einsum("ihd,jd->hij", q, k[:, 0])
        if "softcap" in self.options:
            scores = self.options["softcap"] * np.tanh(scores / self.options["softcap"])
        sinks = self.options.get("sinks", np.full(self.H, -np.inf))[:, None, None]
        largest = np.maximum(scores.max(-1, initial=0, keepdims=True), sinks)
        weights = np.where(self.hidden(len(q), len(k)), 0, np.exp(scores - largest))
        total = weights.sum(-1, keepdims=True) + np.exp(sinks - largest)
        return np.einsum("hij,jd->ihd", weights / np.where(total == 0, 1, total), v[:, 0])
